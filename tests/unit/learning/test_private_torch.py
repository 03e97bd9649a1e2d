"""A torch without the private operations that make us faster gives the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sentdist.learning.encoder import private_torch
from sentdist.learning.encoder.grouped_attention import GroupedAttention, length_groups


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A torch that has none of them."""
    for found in (private_torch.has_attention, private_torch._has_softmax_backward):
        found.cache_clear()
    monkeypatch.delattr(torch, "_softmax_backward_data")
    for name in private_torch._ARGUMENTS:
        monkeypatch.setattr(torch.ops.aten, name, None, raising=False)
    yield
    monkeypatch.undo()
    for found in (private_torch.has_attention, private_torch._has_softmax_backward):
        found.cache_clear()


def _gradients() -> list[torch.Tensor]:
    """Of attention in sentences of 3, 5 and 4 tokens with two heads."""
    torch.manual_seed(0)
    rows = [torch.randn(24, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    grouped = length_groups([3, 5, 4], torch.device("cpu"), num_heads=2)
    GroupedAttention.apply(*rows, grouped, 8**-0.5, 0.0).square().sum().backward()
    return [row.grad for row in rows if row.grad is not None]


WITH_THEM = _gradients()


def test_attention_has_the_same_gradient(bare: None) -> None:
    assert not private_torch._has_softmax_backward()
    for found, expected in zip(_gradients(), WITH_THEM, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_this_torch_has_them() -> None:
    """Else everything above would hold, and every training take longer."""
    assert private_torch._has_softmax_backward()
    assert all(private_torch.has_attention(name) for name in private_torch._ARGUMENTS)
