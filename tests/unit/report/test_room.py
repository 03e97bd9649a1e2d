"""Figures have room for their words and for their points: no label is cut, and one point far off does not flatten the rest."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.image import imread

from sentdist.report.cost import Cost, cost_plot
from sentdist.report.figures import LearningCurve, learning_curves, regulators_curve
from sentdist.report.style import Drawing

UNIT = "stackfaq:map (share of queries or mean precision × 100)"
DEV = "askubuntu-dev+cqadupstack-dev+twitter (mean of MAP, MAP@100 and average precision × 100)"
COSTS = [Cost(system=name, scores=[score], alone_s=10.0, shared_s=5.0) for name, score in (("a", 80.0), ("b", 81.0))]
CURVE = LearningCurve(label="a", seed=0, steps=[0, 1, 2], losses=[3.0, 2.0, 1.0], dev_steps=[1, 2], dev_scores=[70.0, 71.0])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: cost_plot(COSTS, unit=UNIT),
        lambda: regulators_curve({0: [80.0], 2: [81.0]}, unit=UNIT),
        lambda: learning_curves([CURVE], dev_unit=DEV),
    ],
    ids=["cost", "regulators", "learning"],
)
def test_the_words_of_an_upright_axis_are_whole(draw: Callable[[], Drawing]) -> None:
    picture = imread(io.BytesIO(draw().png))[..., :3]
    borders = np.concatenate([picture[:4].ravel(), picture[-4:].ravel()])
    assert borders.min() == 1.0, "white at the upper and lower border, where words would be cut"
