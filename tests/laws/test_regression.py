"""What holds for the regression losses whatever predictions and labels are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sentdist.objectives.regression import prediction_errors, smooth_k2, translated_relu

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
