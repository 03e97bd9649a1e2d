"""Attention by groups in bfloat16 is as exact as bfloat16 states are: large scores, as T5 has them, do not make it worse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sentdist.learning.encoder.grouped_attention import grouped_attention, length_groups
from sentdist.learning.kernels.interface import Band

LENGTHS = [70, 33, 12, 9]
HEADS, WIDTH = 2, 32


def _attended(states: list[Tensor], distances: Tensor | None, band: Band | None) -> list[Tensor]:
    """The context and the gradients of queries, keys, values and distances, in float64."""
    leaves = [state.detach().requires_grad_() for state in (*states, *([] if distances is None else [distances]))]
    grouped = length_groups(LENGTHS, torch.device("cpu"), num_heads=HEADS)
    context = grouped_attention(
        leaves[0], leaves[1], leaves[2], grouped, scale=1.0, p=0.0, band=band, distances=None if distances is None else leaves[3]
    )
    toward = torch.randn(context.shape, generator=torch.Generator().manual_seed(1)).to(context.dtype)
    return [context.detach().double(), *(grad.double() for grad in torch.autograd.grad(context, leaves, toward))]


@pytest.mark.parametrize("has_distances", [False, True])
@pytest.mark.parametrize("band", [None, Band(before=None, after=0)])
def test_scores_are_not_rounded(has_distances: bool, band: Band | None) -> None:
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(sum(LENGTHS), HEADS, WIDTH, generator=draw) for _ in range(3))
    states = [state.bfloat16() for state in (query * 3.3, key * 3.3, value)]
    distances = 8 * torch.randn(HEADS, 2 * max(LENGTHS) - 1, generator=draw) if has_distances else None
    scores = torch.einsum("thd,shd->hts", states[0].float(), states[1].float())
    assert scores.abs().max() > 60.0
    exact = _attended([state.double() for state in states], None if distances is None else distances.double(), band)
    found = _attended(states, distances, band)
    for name, one, expected in zip(("context", "queries", "keys", "values", "distances"), found, exact, strict=False):
        off = (one - expected).norm() / expected.norm()
        assert off < 0.015, f"{name}: {off:.4f}"
