"""Figures have room for their words and for their points: no label is cut, and one point far off does not flatten the rest."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from sentdist.evaluation.significance import Difference
from sentdist.report import figures as forest
from sentdist.report.figures import LearningCurve, forest_plot, learning_curves, regulators_curve, task_forest
from sentdist.report.selection import Cost, cost_plot
from sentdist.report.style import DOTS_AN_INCH, Drawing

pytestmark = pytest.mark.pixels

UNIT = "stackfaq:map (mean over queries × 100)"
DEV = "askubuntu-dev+cqadupstack-dev+twitter (mean of MAP, MAP@100 and average precision × 100)"
COSTS = [Cost(system=name, scores=[score], alone_s=10.0, shared_s=5.0, num_trials=1) for name, score in (("a", 80.0), ("b", 81.0))]
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


@pytest.mark.parametrize("system", ["a", "rcl (batch_size=128, learning_rate=3e-05, phis={0.01, 0.02, 0.03})"])
def test_the_words_under_a_forest_are_whole(system: str) -> None:
    """However long the name of the baseline, and wherever a system's name leaves the axis."""
    baseline, unit = "Eq. $_$ fine-tuning at the same batch_size, learning_rate and max_length", "Spearman's correlation × 100"
    one = _difference(0.5)
    for drawing in (
        forest_plot({system: one}, baseline=baseline, unit=f"difference: average of 7 tasks ({unit})"),
        task_forest({system: {"a": one, "b": one}}, baseline=baseline, tasks=["a", "b"], unit=unit),
    ):
        picture = imread(io.BytesIO(drawing.png))[..., :3]
        assert min(picture[:, 0].min(), picture[:, -1].min()) == 1.0, "white at the left and right border, where words would be cut"


@pytest.mark.parametrize(
    "system", ["a", "RCL (learning_rate=8.8914e-05, temperature=0.0125, regulator_weight=1, phis={-0.3, 0.3})", 40 * "rcl "]
)
def test_a_forest_has_room_for_its_intervals_beside_long_names(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finalists of a search are called after all their settings: their intervals had a tenth of an inch."""
    drawn: list[Figure] = []
    monkeypatch.setattr(forest, "save", lambda figure, **_: drawn.append(figure))
    forest_plot({system: _difference(0.5), "other": _difference(-0.5)}, baseline="base", unit="difference: score")
    figure = drawn[-1]
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_position().width * figure.get_figwidth() > 2.5
    heights = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(not one.overlaps(other) for one, other in itertools.pairwise(heights))


@pytest.mark.parametrize("system", ["a", "rcl (batch_size=128, learning_rate=3e-05, phis={0.01, 0.02, 0.03})"])
def test_the_titles_of_panels_do_not_run_into_each_other(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of a person's own file are called after it, with the measure."""
    drawn: list[Figure] = []
    monkeypatch.setattr(forest, "save", lambda figure, **_: drawn.append(figure))
    names = [f"retrieval-questions-of-our-customers-2026-csv-test:{measure}" for measure in ("acc@1", "acc@3", "map", "mrr", "ndcg@10")]
    for tasks in (names, ["STS12", "STS13", "Avg"]):
        task_forest({system: dict.fromkeys(tasks, _difference(0.5))}, baseline="base", tasks=tasks, unit="score")
        figure = drawn[-1]
        figure.draw_without_rendering()
        titles = [one for axes in figure.axes for one in axes.get_children() if isinstance(one, Text) and one.get_text()]
        assert [one.get_text().replace("\n", "") for one in titles] == tasks
        boxes = [one.get_window_extent() for one in titles]
        assert not [(one, other) for one, other in itertools.combinations(boxes, 2) if one.overlaps(other)]
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)
        panels = [axes.get_window_extent().height for axes in figure.axes if axes.get_visible()]
        assert min(panels) > 15, "room is left for the points"


def _difference(points: float) -> Difference:
    return Difference(difference=points, low=points - 1, high=points + 1, p=0.2, table_p=0.4, about="seeds")


def test_losses_of_different_objectives_do_not_share_an_axis() -> None:
    curves = [replace(CURVE, label=label) for label in ("a", "b", "c")]
    together = learning_curves(curves, dev_unit=DEV)
    apart = learning_curves(curves, dev_unit=DEV, objectives={"a": "info_nce", "b": "cosent", "c": "info_nce"}, num_systems=5)
    heights = [imread(io.BytesIO(drawing.png)).shape[0] for drawing in (together, apart)]
    assert heights[1] - heights[0] == pytest.approx(1.7 * DOTS_AN_INCH, abs=1), "a panel more"
    assert "Each objective has its own panel" in apart.caption and "own panel" not in together.caption
    assert apart.caption.endswith("3 of 5 trained systems: the baseline and the best.") and together.table == apart.table


def test_a_forest_says_what_its_intervals_speak_of() -> None:
    """A filled mark of one seed is about test items alone."""
    seeds, items = _difference(1.0), replace(_difference(1.0), about="items")
    captions = [forest_plot(found, baseline="Eq. 1", unit="score").caption for found in ({"a": items}, {"a": seeds, "b": items})]
    assert "interval over other test items, with the same encoders. Filled" in captions[0]
    assert "over other test items, with the same encoders; of some over other seeds, on the same test items. Filled" in captions[1]
