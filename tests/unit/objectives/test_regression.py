"""The regression objective at its seams: what it refuses, what its head reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sentdist.errors import DataError
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.objectives.learned.regression import RegressionHead
from sentdist.objectives.regression import Regression, cross_entropy, prediction_errors
from tests.support import make


def batch_of(num_rows: int, num_columns: int = 2) -> Batch:
    tokens = collate([[1]] * (num_columns * num_rows))
    ids = np.arange(num_columns * num_rows).reshape(num_columns, num_rows)
    return Batch(tokens=tokens, num_columns=num_columns, first_row=0, sentence_ids=ids, labels=torch.ones(num_rows))


@pytest.mark.parametrize(("predictions", "labels"), [((4, 1), (4,)), ((4,), (4, 1)), ((4, 1), (4, 1)), ((4,), (3,))])
def test_the_shape_trap(predictions: tuple[int, ...], labels: tuple[int, ...]) -> None:
    """(B, 1) − (B,) would be (B, B) without a word."""
    with pytest.raises(DataError, match=r"expected .B,. both"):
        prediction_errors(torch.zeros(predictions), torch.zeros(labels), boundary="none", low=0, high=2)


def test_the_shape_trap_of_classes() -> None:
    with pytest.raises(DataError, match=r"expected .B, V. and .B,."):
        cross_entropy(torch.zeros(4, 3), torch.zeros(4, 1), low=0, spacing=1)


@pytest.mark.parametrize(("features", "width"), [("uv", 8), ("diff", 4), ("uv_diff", 12)])
def test_the_head_gives_one_number_a_pair(features: str, width: int) -> None:
    head = RegressionHead(4, features=features)
    assert head.linear.weight.shape == (1, width)
    u, v = torch.randn(2, 3, 4).unbind()
    assert head(u, v).shape == (3,)
    assert bool((head(u, v) == head(v, u)).all()) is (features == "diff")
    assert RegressionHead(4, features=features, num_classes=3)(u, v).shape == (3, 3)


def test_a_perfect_head_has_no_loss() -> None:
    """Planted: u = (label), v = 0, weight 1 on u."""
    objective = make.regression(width=1, loss="smooth_k2", slope=2.0, threshold=0.25, features="uv")
    with torch.no_grad():
        objective.head.linear.weight.copy_(torch.tensor([[1.0, 0.0]]))
        objective.head.linear.bias.zero_()
    labels = torch.tensor([0.0, 1.0, 2.0])
    batch = replace(batch_of(3), labels=labels)
    assert objective(torch.cat([labels, torch.zeros(3)])[:, None], batch) == 0
    assert objective(torch.cat([labels + 0.5, torch.zeros(3)])[:, None], batch).item() == pytest.approx(2 * 0.25**2)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (replace(batch_of(2), labels=None), "found 2 columns, no labels"),
        (batch_of(2, num_columns=3), "found 3 columns, labels; expected two columns and a label for every row"),
        (replace(batch_of(2), labels=torch.ones(2, 1)), "expected .B,. both"),
    ],
)
def test_batches_that_are_not_graded_pairs(batch: Batch, message: str) -> None:
    objective = make.regression(width=4, loss="mse")
    with pytest.raises(DataError, match=message):
        objective(torch.randn(batch.num_columns * 2, 4), batch)


@pytest.mark.parametrize("low", [0.0, 1.0])
def test_each_label_of_a_fine_grid_is_a_class_of_its_own(low: float) -> None:
    """In float32 a label of 0.1 steps is a little below or above its place."""
    labels = low + torch.arange(51) * 0.1
    logits = 100 * torch.eye(51)
    assert cross_entropy(logits, labels, low=low, spacing=0.1) < 1e-6


@pytest.mark.parametrize("steps", range(1, 51))
def test_a_grid_has_a_class_for_both_ends_and_each_step_between(steps: int) -> None:
    """0.3 / 0.1 is 2.9999999999999996 in float64."""
    objective = Regression(loss="cross_entropy", boundary="none", label_range=(0.0, steps / 10), spacing=0.1)
    assert objective.num_classes == steps + 1


def test_a_label_that_rounding_has_put_beside_its_end_is_that_end() -> None:
    """0.1 + 0.2 is above 0.3 and three times a float32 of 0.1 may be below it: what lies beyond is forgiven all the same."""
    labels = torch.tensor([0.3 - 2e-6, 2e-6, 0.2])
    errors = prediction_errors(torch.tensor([0.4, -0.1, 0.4]), labels, boundary="one_sided", low=0.0, high=0.3)
    assert errors.tolist() == [0.0, 0.0, pytest.approx(0.2)]
