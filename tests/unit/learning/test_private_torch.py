"""A torch without the private operations that make us faster gives the same numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sentdist.learning.encoder import private_torch
from sentdist.learning.encoder.fused_attention import fused_kernel
from sentdist.learning.encoder.grouped_attention import GroupedAttention, length_groups

ROOT = Path(__file__).parents[3]


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_attends_without_its_kernels(dtype: torch.dtype, bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentdist.learning.encoder.fused_attention._capability", lambda device: (9, 0))
    assert fused_kernel(torch.device("cuda"), dtype, 64) is None


def test_this_torch_has_them() -> None:
    """Else everything above would hold, and every training take longer."""
    assert private_torch._has_softmax_backward()
    assert all(private_torch.has_attention(name) for name in private_torch._ARGUMENTS)


def test_no_other_file_uses_what_is_private() -> None:
    """But the packed products, which ask themselves, and the kernels that are asked for here."""
    private = re.compile(r"torch\._[a-z]\w*\(|ops\.(?:aten|mkldnn)\._|aten\._")
    using = {path.name for path in (ROOT / "sentdist").rglob("*.py") if private.search(path.read_text())}
    assert using == {"private_torch.py", "packed_linear.py", "fused_attention.py"}
