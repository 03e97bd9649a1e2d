"""A loss on embeddings of one's own over two ranks: value and gradient are those of one process with all rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import sentdist
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.plan.stage import Json
from tests.parity.processes import run_in_processes

M, D, N = 8, 5, 2
CASES: dict[str, dict[str, Json]] = {"info_nce": {"temperature": 0.1}, "rcl": {"regulator_temperature": 0.3}}


def _loss_and_gradient(rank: int, world_size: int, name: str) -> tuple[float, Tensor]:
    draw = torch.Generator().manual_seed(3)
    columns = torch.randn(3, M, D, dtype=torch.float64, generator=draw)
    augmented = torch.randn(2, N, M, D, dtype=torch.float64, generator=draw)
    weight = nn.Parameter(torch.randn(D, D, dtype=torch.float64, generator=draw))
    own = slice(rank * M // world_size, (rank + 1) * M // world_size)
    sides = augmented[:, :, own] if name == "rcl" else None
    loss = sentdist.objective(name, **CASES[name])(*(columns[:, own] @ weight), augmented=None if sides is None else tuple(sides))
    loss.backward()
    average_gradients([weight])
    assert weight.grad is not None
    return loss.item(), weight.grad


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_two_ranks_are_one(name: str) -> None:
    loss, gradient = _loss_and_gradient(0, 1, name)
    ranks = run_in_processes(_loss_and_gradient, 2, name)
    assert sum(found for found, _ in ranks) / 2 == pytest.approx(loss, rel=1e-12)
    for _, found in ranks:
        torch.testing.assert_close(found, gradient, atol=1e-13, rtol=1e-12)  # sums of a few dozen float64 terms of size 1
