"""What holds for the objectives whatever the embeddings are."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.info_nce import info_nce
from sentdist.objectives.rcl import rcl


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rcl_at(anchors: Tensor, positives: Tensor, bank_q: Tensor, bank_ind: Tensor, temperature: float = 1.0) -> Tensor:
    return rcl(
        anchors, positives, positives, bank_q, bank_ind,
        first_row=0, temperature=temperature, regulator_temperature=temperature, regulator_weight=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("phi", "is_more_certain"), [(0.5, True), (-0.5, False)])
def test_descending_eq_2_with_positive_phi_makes_the_rest_more_certain(phi: float, is_more_certain: bool) -> None:
    anchors, candidates = randn(0, 7, 5).requires_grad_(), randn(1, 7, 5)

    def rest_entropy() -> Tensor:
        at_one, at_zero = (entropy_info_nce(anchors, candidates, first_row=0, temperature=1.0, phi=value) for value in (1.0, 0.0))
        return at_one - at_zero

    before = rest_entropy()
    (plain,) = torch.autograd.grad(info_nce(anchors, candidates, first_row=0, temperature=1.0), anchors)
    (gradient,) = torch.autograd.grad(entropy_info_nce(anchors, candidates, first_row=0, temperature=1.0, phi=phi), anchors)
    with torch.no_grad():
        anchors -= 0.1 * (gradient - plain)  # only what phi adds
    assert bool(rest_entropy() < before) is is_more_certain


@pytest.mark.parametrize(("num_rows", "floor"), [(32, 1.648), (64, 2.254)])
def test_floor_of_eq_1(num_rows: int, floor: float) -> None:
    """ln(1 + (M − 1)e^{−2}) at temperature 1, reached where the positive lies along and all others against the anchor."""
    candidates = torch.full((num_rows, 1), -1.0, dtype=torch.float64)
    candidates[0] = 1.0
    lowest = info_nce(torch.ones(1, 1, dtype=torch.float64), candidates, first_row=0, temperature=1.0)
    assert float(lowest) == pytest.approx(math.log(1 + (num_rows - 1) * math.exp(-2)))
    assert float(lowest) == pytest.approx(floor, abs=5e-4)
    assert info_nce(randn(0, num_rows, 4), randn(1, num_rows, 4), first_row=0, temperature=1.0) > lowest


def test_floor_of_eq_3_with_four_encoders_at_64_rows() -> None:
    floor = 9 * math.log(1 + 63 * math.exp(-2))
    assert floor == pytest.approx(20.3, abs=0.05)
    anchors, positives = randn(0, 64, 8), randn(1, 64, 8)
    assert rcl_at(anchors, anchors, anchors.expand(4, -1, -1), anchors.expand(4, -1, -1)) > floor
    assert rcl_at(anchors, positives, randn(2, 4, 64, 8), randn(3, 4, 64, 8)) > floor
