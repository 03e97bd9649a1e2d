"""Attention whose scores depend on how far a key is from its query, as MPNet's: by kernels and by groups, against what one writes first."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from torch import Tensor, nn

from sentdist.learning.encoder.flat_attention import Segments, flat_attention
from sentdist.learning.kernels import cpp_kernels
from tests.support.kernel_reference import attended

LENGTHS = [5, 1, 12, 30, 7, 13, 5]
HEADS, WIDTH = 3, 8


def by_flat_attention(states: list[Tensor], distances: Tensor, *, dropout: float = 0.0) -> Tensor:
    """(T, H · head width)."""
    bounds = torch.tensor([0, *accumulate(LENGTHS)], dtype=torch.int32)
    segments = Segments(lengths=LENGTHS, boundaries=bounds, num_heads=HEADS, head_width=WIDTH, distances=distances)
    by_head = (rows.unflatten(1, (HEADS, WIDTH)).transpose(0, 1)[None] for rows in states)
    context, _ = flat_attention(nn.Identity().train(), *by_head, None, segments=segments, scaling=0.5, dropout=dropout)
    return context.squeeze(0).flatten(1)


@pytest.fixture(params=["kernels", "groups"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "groups":
        monkeypatch.setattr(cpp_kernels, "why_unavailable", lambda: "not now")
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("longest", "dtype"), [(30, torch.float32), (41, torch.bfloat16)])
def test_value_and_gradients(longest: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    given = [torch.randn(sum(LENGTHS), HEADS * WIDTH).to(dtype) for _ in range(4)]
    distances = torch.randn(HEADS, 2 * longest - 1)
    found_of = [one.detach().requires_grad_() for one in (*given[:3], distances)]
    found = by_flat_attention(found_of[:3], found_of[3])
    wanted_of = [one.double().requires_grad_() for one in (*given[:3], distances)]
    wanted = attended(
        (wanted_of[0], wanted_of[1], wanted_of[2]), LENGTHS, heads=HEADS, scale=0.5, mask=None, head_scales=None, distances=wanted_of[3]
    )  # fmt: skip
    found.backward(given[3])
    wanted.backward(given[3].double())
    bound = 2e-6 if dtype == torch.float32 else 2e-2
    for one, other in [(found, wanted), *((mine.grad, theirs.grad) for mine, theirs in zip(found_of, wanted_of, strict=True))]:
        assert one is not None and other is not None
        assert float((one.detach().double() - other.detach()).norm()) <= bound * float(other.detach().norm())


@pytest.mark.usefixtures("way")
def test_under_dropout_the_gradient_is_that_of_the_drawn_function() -> None:
    torch.manual_seed(0)
    states = [torch.randn(sum(LENGTHS), HEADS * WIDTH) for _ in range(3)]
    distances, direction = (torch.randn(HEADS, 2 * max(LENGTHS) - 1) for _ in range(2))

    def loss(moved: Tensor) -> Tensor:
        torch.manual_seed(5)
        return by_flat_attention(states, moved, dropout=0.3).double().pow(2).sum()

    (gradient,) = torch.autograd.grad(loss(distances.requires_grad_()), distances)
    with torch.no_grad():
        slope = float(loss(distances + 1e-2 * direction) - loss(distances - 1e-2 * direction)) / 2e-2
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-3)
