"""The regression objective at its seams: what it refuses, what its head reads, which labels fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.batch import Batch, collate
from sentdist.objectives.learned.regression import LabelGrid, Regression, RegressionHead
from sentdist.objectives.regression import cross_entropy, prediction_errors

NLI = LabelGrid(low=0, high=2)


def batch_of(num_rows: int, num_columns: int = 2) -> Batch:
    tokens = collate([[1]] * (num_columns * num_rows))
    ids = np.arange(num_columns * num_rows).reshape(num_columns, num_rows)
    return Batch(tokens=tokens, num_columns=num_columns, first_row=0, sentence_ids=ids, labels=torch.ones(num_rows))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slope": 0.0}, "regression.slope: found 0.0; expected a finite number above 0"),
        ({"slope": -1.0}, "regression.slope: found -1.0"),
        ({"slope": float("nan")}, "regression.slope: found nan"),
        ({"slope": None}, "regression.slope: found None"),
        ({"threshold": 0.51}, "regression.threshold: found 0.51; expected 0 to 0.5, half the distance of two labels"),
        ({"threshold": -0.1}, "regression.threshold: found -0.1"),
        ({"threshold": None}, "regression.threshold: found None"),
        ({"loss": "smooth_k3"}, "regression.loss: found .smooth_k3.; expected one of translated_relu, smooth_k2"),
        ({"loss": "mse", "threshold": None}, "regression.slope: found 2.0; expected none for mse"),
        ({"loss": "l1", "slope": None}, "regression.threshold: found 0.25; expected none for l1"),
        (
            {"loss": "cross_entropy", "slope": None, "threshold": None},
            "regression.boundary: found left_mask; expected none for cross_entropy",
        ),
        ({"boundary": "right"}, "regression.boundary: found .right.; expected one of none, left_mask, clamp, one_sided"),
        ({"features": "diff_uv"}, "regression.features: found .diff_uv."),
        ({"labels": LabelGrid(low=0, high=2, spacing=None)}, "regression.spacing: found none; expected the distance of two labels"),
        ({"labels": LabelGrid(low=0, high=2, spacing=0.4)}, "regression.threshold: found 0.25; expected 0 to 0.2"),
    ],
)
def test_values_that_do_not_fit(changes: dict[str, object], message: str) -> None:
    values: dict[str, object] = {"width": 4, "labels": NLI, "loss": "smooth_k2", "slope": 2.0, "threshold": 0.25} | changes
    with pytest.raises(RecipeError, match=message):
        Regression(**values)  # type: ignore[arg-type]


def test_a_threshold_of_half_a_spacing_is_allowed() -> None:
    Regression(width=4, labels=NLI, loss="translated_relu", slope=1.0, threshold=0.5)


@pytest.mark.parametrize(
    ("low", "high", "spacing", "message"),
    [
        (2, 0, 1.0, "regression.label_range: found 2 to 0"),
        (0, 0, 1.0, "regression.label_range: found 0 to 0"),
        (0, float("inf"), 1.0, "regression.label_range"),
        (0, 5, 0.0, "regression.spacing: found 0.0"),
        (0, 5, 2.0, "regression.label_range: found 0 to 5 in steps of 2"),
    ],
)
def test_ranges_that_are_none(low: float, high: float, spacing: float, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        LabelGrid(low=low, high=high, spacing=spacing)


@pytest.mark.parametrize(("grid", "num_classes"), [(NLI, 3), (LabelGrid(low=0, high=5), 6), (LabelGrid(low=1, high=5, spacing=0.1), 41)])
def test_number_of_classes(grid: LabelGrid, num_classes: int) -> None:
    assert grid.num_classes == num_classes
    grid.check(np.linspace(grid.low, grid.high, num_classes, dtype=np.float32), where="corpus")


@pytest.mark.parametrize(
    ("label", "grid", "message"),
    [
        (3.0, NLI, r"corpus: found label 3 in row 1 \(2 such rows\); expected labels from 0 to 2 in steps of 1"),
        (0.5, NLI, r"found label 0.5 in row 1"),
        (float("nan"), NLI, "found label nan in row 1"),
        (2.1, LabelGrid(low=0, high=2, spacing=None), "expected labels from 0 to 2. Round or map"),
    ],
)
def test_labels_that_do_not_fit(label: float, grid: LabelGrid, message: str) -> None:
    with pytest.raises(DataError, match=message):
        grid.check(np.array([0, label, 1, label], dtype=np.float32), where="corpus")


def test_labels_between_are_fine_without_a_spacing() -> None:
    LabelGrid(low=0, high=5, spacing=None).check(np.array([0, 2.35, 5], dtype=np.float32), where="corpus")


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
    objective = Regression(width=1, labels=NLI, loss="smooth_k2", slope=2.0, threshold=0.25, features="uv")
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
    objective = Regression(width=4, labels=NLI, loss="mse")
    with pytest.raises(DataError, match=message):
        objective(torch.randn(batch.num_columns * 2, 4), batch)
