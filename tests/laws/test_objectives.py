"""What holds for the objectives whatever the embeddings are."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.info_nce import info_nce
from sentdist.objectives.rcl import rcl, regulators

seeds = st.integers(0, 2**31)
temperatures = st.sampled_from([1.0, 0.3, 0.05])
CLOSE = {"rtol": 1e-10, "atol": 1e-10}  # float64; cosines to 1e-15, divided by temperatures down to 0.05


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rcl_at(anchors: Tensor, positives: Tensor, bank_q: Tensor, bank_ind: Tensor, temperature: float = 1.0) -> Tensor:
    return rcl(
        anchors, positives, positives, bank_q, bank_ind,
        first_row=0, temperature=temperature, regulator_temperature=temperature, regulator_weight=1.0,
    )  # fmt: skip


@given(seeds, temperatures)
def test_phi_zero_is_eq_1(seed: int, temperature: float) -> None:
    anchors, candidates = randn(seed, 7, 5), randn(seed + 1, 14, 5)
    plain = info_nce(anchors, candidates, first_row=0, temperature=temperature)
    torch.testing.assert_close(entropy_info_nce(anchors, candidates, first_row=0, temperature=temperature, phi=0.0), plain, **CLOSE)


@given(seeds, temperatures, st.floats(-1, 1), st.floats(0.001, 1))
def test_eq_2_rises_with_phi(seed: int, temperature: float, phi: float, more: float) -> None:
    """J = Eq. 1 + φ·H with H ≥ 0."""
    anchors, candidates = randn(seed, 7, 5), randn(seed + 1, 7, 5)
    lower, higher = (entropy_info_nce(anchors, candidates, first_row=0, temperature=temperature, phi=value) for value in (phi, phi + more))
    assert higher > lower


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


@given(seeds, temperatures)
def test_an_empty_bank_turns_rcl_into_eq_1(seed: int, temperature: float) -> None:
    anchors, positives = randn(seed, 7, 5), randn(seed + 1, 7, 5)
    empty = torch.empty(0, 7, 5, dtype=torch.float64)
    plain = info_nce(anchors, positives, first_row=0, temperature=temperature)
    torch.testing.assert_close(rcl_at(anchors, positives, empty, empty, temperature), plain, **CLOSE)


@given(seeds, temperatures)
def test_a_common_rotation_changes_nothing(seed: int, temperature: float) -> None:
    anchors, positives, bank_q, bank_ind = randn(seed, 7, 5), randn(seed + 1, 7, 5), randn(seed + 2, 2, 7, 5), randn(seed + 3, 2, 7, 5)
    rotation, _ = torch.linalg.qr(randn(seed + 4, 5, 5))
    rotated = rcl_at(*(tensor @ rotation for tensor in (anchors, positives, bank_q, bank_ind)), temperature=temperature)
    torch.testing.assert_close(rotated, rcl_at(anchors, positives, bank_q, bank_ind, temperature), **CLOSE)


@given(seeds, st.floats(0.01, 100))
def test_lengths_do_not_count(seed: int, factor: float) -> None:
    anchors, positives, bank_q, bank_ind = randn(seed, 7, 5), randn(seed + 1, 7, 5), randn(seed + 2, 2, 7, 5), randn(seed + 3, 2, 7, 5)
    torch.testing.assert_close(
        rcl_at(anchors * factor, positives / factor, bank_q * factor, bank_ind), rcl_at(anchors, positives, bank_q, bank_ind), **CLOSE
    )


@given(seeds, seeds)
def test_the_order_of_rows_changes_nothing(seed: int, shuffle: int) -> None:
    anchors, positives, bank_q, bank_ind = randn(seed, 7, 5), randn(seed + 1, 7, 5), randn(seed + 2, 2, 7, 5), randn(seed + 3, 2, 7, 5)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(shuffle))
    torch.testing.assert_close(
        rcl_at(anchors[order], positives[order], bank_q[:, order], bank_ind[:, order]),
        rcl_at(anchors, positives, bank_q, bank_ind),
        **CLOSE,
    )


@given(seeds, st.integers(0, 4))
def test_rows_of_a_batch_average_to_the_batch(seed: int, first: int) -> None:
    """first_row picks the right target: anchors scored in two parts give the whole's mean."""
    anchors, positives, bank = randn(seed, 6, 5), randn(seed + 1, 6, 5), randn(seed + 2, 2, 6, 5)
    cut = first + 1
    for loss in (
        lambda rows, start: info_nce(rows, positives, first_row=start, temperature=1.0),
        lambda rows, start: entropy_info_nce(rows, positives, first_row=start, temperature=1.0, phi=0.3),
        lambda rows, start: regulators(rows, bank, first_row=start, temperature=1.0),
    ):
        parts = (cut * loss(anchors[:cut], 0) + (6 - cut) * loss(anchors[cut:], cut)) / 6
        torch.testing.assert_close(parts, loss(anchors, 0), **CLOSE)


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
