"""What holds for the objectives whatever the embeddings are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.info_nce import info_nce
from sentdist.objectives.rcl import rcl
from sentdist.objectives.regression import prediction_errors, smooth_k2, translated_relu
from tests.support import make


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


seeds = st.integers(0, 2**31)


def drawn(seed: int) -> tuple[Tensor, Tensor]:
    """Predictions around and outside of the range 0 to 2, labels within; both (32,)."""
    generator = torch.Generator().manual_seed(seed)
    predictions = 1 + 2 * torch.randn(32, dtype=torch.float64, generator=generator)
    return predictions.requires_grad_(), torch.randint(0, 3, (32,), generator=generator).double()


def errors(predictions: Tensor, labels: Tensor, boundary: str = "none") -> Tensor:
    return prediction_errors(predictions, labels, boundary=boundary, low=0.0, high=2.0)


@given(seeds)
def test_wrong_predictions_outside_keep_their_gradient_only_where_one_sided(seed: int) -> None:
    """Label 2, p = −0.4: the released mask and the paper's clamp leave it where it is forever; one_sided pulls it back."""
    predictions, labels = drawn(seed)
    wrong = ((predictions < 0) & (labels > 0)) | ((predictions > 2) & (labels < 2))
    forgiven = ((predictions < 0) & (labels == 0)) | ((predictions > 2) & (labels == 2))
    for boundary, pulls in [("one_sided", True), ("clamp", False), ("none", True)]:
        value = smooth_k2(errors(predictions, labels, boundary), slope=2.0, threshold=0.25)
        (gradient,) = torch.autograd.grad(value, predictions)
        assert bool((gradient[wrong] != 0).all()) is pulls or not wrong.any()
        assert boundary == "none" or not gradient[forgiven].any()


@pytest.mark.parametrize(("loss", "slope_at_kink"), [(translated_relu, 2.5), (smooth_k2, 0.0)])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_the_slope_at_the_kink(loss: object, slope_at_kink: float, side: float) -> None:
    """The released Translated ReLU (torch.clamp) has slope k at exactly x = x0. 0.25 is a binary fraction, so x is x0 to the last bit."""
    prediction = torch.tensor([1.0 + side * 0.25], requires_grad=True)
    value = loss(errors(prediction, torch.tensor([1.0])), slope=2.5, threshold=0.25)  # type: ignore[operator]
    (gradient,) = torch.autograd.grad(value, prediction)
    assert value == 0 and gradient.item() == side * slope_at_kink


M, D = 7, 5


def names(count: int) -> tuple[str, ...]:
    return tuple(f"relation {number}" for number in range(count))


def batch_of(relations: list[int] | None, *, num_columns: int = 3, num_positives: int = 1) -> Batch:
    ids = np.arange(num_columns * M).reshape(num_columns, M)
    return Batch(
        tokens=collate([[1]] * ids.size),
        num_columns=num_columns,
        first_row=0,
        sentence_ids=ids,
        num_positives=num_positives,
        relations=None if relations is None else torch.tensor(relations),
    )


def test_a_table_starts_small_and_has_a_rate_of_its_own() -> None:
    torch.manual_seed(0)
    objective = make.relational(relations=names(50), width=400)
    table = objective.table
    assert float(table.vectors.weight.detach().std()) == pytest.approx(0.02, rel=0.02)  # 20,000 draws: the error of a std is 0.5 %
    (own,) = objective.own_rates()
    assert (own.learning_rate, own.weight_decay) == (1e-2, 0.0)
    assert own.parameters == (table.vectors.weight,)


def test_values_without_a_meaning_are_refused() -> None:
    for field, value in (("temperature", 0.0), ("phi", float("nan")), ("relation_learning_rate", 0.0)):
        with pytest.raises(ValidationError, match=field):
            make.relational(relations=names(2), width=D, **{field: value})
