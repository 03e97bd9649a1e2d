"""The figures of the regression losses: complete, well formed, and true to the losses that are trained."""

from __future__ import annotations

import csv
import io
import itertools
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from sentdist.errors import DataError
from sentdist.objectives.regression import l1, mse, smooth_k2, translated_relu
from sentdist.report.method_figures import LossShape, ThresholdCell, loss_shapes, threshold_surfaces
from sentdist.report.style import Drawing

pytestmark = pytest.mark.pixels

UNIT = "average of 7 tasks (Spearman's correlation × 100)"
SHAPES = [
    (LossShape(loss="l1"), l1),
    (LossShape(loss="mse"), mse),
    (LossShape(loss="translated_relu", slope=2.5, threshold=0.25), lambda x: translated_relu(x, slope=2.5, threshold=0.25)),
    (LossShape(loss="smooth_k2", slope=2.0, threshold=0.25), lambda x: smooth_k2(x, slope=2.0, threshold=0.25)),
]


def _cells(boundaries: list[str]) -> dict[ThresholdCell, list[float]]:
    grid = itertools.product(["translated_relu", "smooth_k2"], boundaries, [1.0, 2.0, 3.0], [0.2, 0.25])
    cells = {
        ThresholdCell(loss=loss, boundary=boundary, slope=slope, threshold=threshold): [70.0 + slope, 70.5 + threshold]
        for loss, boundary, slope, threshold in grid
    }
    del cells[ThresholdCell(loss="smooth_k2", boundary=boundaries[0], slope=1.0, threshold=0.2)]  # not run
    return cells


def _rows(drawing: Drawing) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(drawing.table)))


@pytest.mark.parametrize("boundaries", [["left_mask"], ["none", "clamp", "one_sided"]])
def test_surfaces(boundaries: list[str]) -> None:
    drawing = threshold_surfaces(_cells(boundaries), unit=UNIT, name="thresholds")
    pixels = imread(io.BytesIO(drawing.png), format="png")
    assert min(pixels.shape[:2]) > 200 and pixels[..., :3].std() > 0.02  # not a blank sheet
    assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
    rows = _rows(drawing)
    assert len(rows) == 12 * len(boundaries) - 1
    assert {row["seeds"] for row in rows} == {"2"} and rows[0]["mean"] == "70.85"
    assert f"k = 3, x0 = 0.25 (Translated ReLU, boundary {boundaries[0]})" in drawing.caption
    assert threshold_surfaces(_cells(boundaries), unit=UNIT, name="thresholds") == drawing


@pytest.mark.parametrize(("shape", "loss"), SHAPES, ids=[shape.loss for shape, _ in SHAPES])
def test_shapes_are_those_of_the_losses_trained(shape: LossShape, loss: object) -> None:
    errors = torch.linspace(0, 1, 101, dtype=torch.float64).requires_grad_()
    values = torch.stack([loss(error[None]) for error in errors])  # type: ignore[operator]
    (slopes,) = torch.autograd.grad(values.sum(), errors)
    assert np.allclose(shape.values(errors.detach().numpy()), values.detach().numpy(), atol=1e-14)
    assert np.allclose(shape.slopes(errors.detach().numpy()), slopes.numpy(), atol=1e-14)


def test_the_figure_of_shapes() -> None:
    drawing = loss_shapes([shape for shape, _ in SHAPES])
    assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
    assert {row["loss"] for row in _rows(drawing)} == {"L1", "MSE", "Translated ReLU (k = 2.5, x0 = 0.25)", "Smooth K2 (k = 2, x0 = 0.25)"}


def test_nothing_to_draw() -> None:
    for draw in (lambda: threshold_surfaces({}, unit=UNIT, name="thresholds"), lambda: loss_shapes([])):
        with pytest.raises(DataError, match="found nothing to draw"):
            draw()
