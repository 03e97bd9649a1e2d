"""What a figure draws is what its table says: bars, bands, marks, words and frames stand where the numbers are."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sentdist.evaluation.significance import Difference
from sentdist.report import cloud, cost, figures, forest, probes, similarity, sweep_drawings, thresholds, useb_figure
from sentdist.report.score_rows import ResultRow
from sentdist.report.search import budgets, importance, parallel
from sentdist.report.search.facts import SearchedMethod, SearchFacts, search_facts
from sentdist.report.style import INK, Drawing, save
from tests.support.synthetic_searches import made_up_search

UNIT = "average of 7 tasks (Spearman's correlation × 100)"
MODULES = (cloud, cost, figures, forest, probes, similarity, thresholds, useb_figure, budgets, importance, parallel)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Drawing]], tuple[Figure, list[dict[str, str]]]]:
    """The figure behind a drawing, and the rows of its table."""
    kept: list[Figure] = []

    def keep(figure: Figure, **named: Any) -> Drawing:
        kept.append(figure)
        return save(figure, **named)

    for module in MODULES:
        monkeypatch.setattr(module, "save", keep)

    def drawn(draw: Callable[[], Drawing]) -> tuple[Figure, list[dict[str, str]]]:
        table = draw().table
        return kept[-1], list(csv.DictReader(io.StringIO(table)))

    return drawn


Drawn = Callable[[Callable[[], Drawing]], tuple[Figure, list[dict[str, str]]]]


def _texts(axes: Any) -> dict[str, tuple[float, float]]:
    return {text.get_text(): text.get_position() for text in axes.texts}


def _ends(collection: Any) -> tuple[float, float]:
    """Lowest and highest of a band."""
    heights = np.concatenate([path.vertices[:, 1] for path in collection.get_paths()])
    return float(np.nanmin(heights)), float(np.nanmax(heights))


def test_each_cell_of_a_heat_map_stands_in_its_row_and_column_and_the_best_is_framed(drawn: Drawn) -> None:
    cells = {("32", "a"): [80.0, 82.0], ("32", "b"): [85.0], ("64", "a"): [70.0], ("128", "b"): [90.0]}
    figure, rows = drawn(lambda: figures.heat_map(cells, unit=UNIT))
    axes = figure.axes[0]
    lines = {label.get_text(): round(at - 0.5) for label, at in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)}
    columns = {label.get_text(): round(at - 0.5) for label, at in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)}
    colours = axes.collections[0].get_array()
    for row in rows:
        line, column = lines[row["batch size"]], columns[row["φ set"]]
        assert colours[line, column] == pytest.approx(float(row["mean"]))
        x, y = _texts(axes)[f"{float(row['mean']):.2f}"]
        assert (int(x), int(y)) == (column, line)
    assert len([text for text in axes.texts if text.get_text() == "not run"]) == 2 and colours.mask.sum() == 2
    assert {row["batch size"] + row["φ set"]: row["seeds"] for row in rows} == {"32a": "2", "32b": "1", "64a": "1", "128b": "1"}
    (frame,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
    assert (frame.get_x(), frame.get_y()) == (columns["b"], lines["128"])
    assert [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"] == ["90.00"]


def _difference(points: float, *, p: float = 0.01, table_p: float = 0.2, half: float = 0.5) -> Difference:
    return Difference(difference=points, low=points - half, high=points + half, p=p, table_p=table_p, about="seeds")


DIFFERENCES = {
    "reported": _difference(1.0, table_p=0.01),
    "by itself alone": _difference(0.9),
    "worse": _difference(-0.7, p=0.3, table_p=0.9),
    "untested": Difference(difference=0.5),
    "far below": _difference(-60.0),
}


def test_a_forest_fills_and_prints_bold_what_the_whole_table_tells(drawn: Drawn) -> None:
    figure, rows = drawn(lambda: forest.forest_plot(DIFFERENCES, baseline="Eq. 1", unit=UNIT))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(DIFFERENCES) and axes.yaxis_inverted(), "from top to bottom"
    said = {place: text for place, text in enumerate(axes.texts)}
    assert [said[place].get_fontweight() for place in range(4)] == ["bold", "normal", "normal", "normal"]
    assert "0.2" in said[1].get_text() and said[3].get_text().endswith("no test") and said[2].get_text().startswith("−0.70")
    lines = [collection for collection in axes.collections if hasattr(collection, "get_segments")]
    ends = [tuple(np.ravel(segment)) for one in lines for segment in one.get_segments()]
    assert [(round(low, 3), place, round(high, 3)) for low, place, high, _ in ends[:3]] == [(0.5, 0, 1.5), (0.4, 1, 1.4), (-1.2, 2, -0.2)]
    (points,) = (one for one in axes.collections if one not in lines)
    assert [list(point) for point in points.get_offsets()] == [[1.0, 0], [0.9, 1], [-0.7, 2], [0.5, 3], [-60.0, 4]]
    assert [same_color(colour, INK) for colour in points.get_facecolor()] == [True, False, False, False, False]
    assert axes.get_xlim()[0] < -60.5 and axes.get_xlim()[1] > 1.5, "every point and interval is inside the axis"
    assert rows[1]["p over table"] == "0.2"


def test_the_variance_of_a_plane_is_its_share_of_all() -> None:
    spread = np.diag([3.0, 2.0, 1.0, 1.0])
    points = np.concatenate([spread, -spread])
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    values = np.linalg.svd(units - units.mean(axis=0), compute_uv=False) ** 2
    assert cloud.principal_plane(points)[1] == pytest.approx(values[:2].sum() / values.sum())


def test_the_most_frequent_parts_have_colours_of_their_own() -> None:
    subsets = [name for number, name in enumerate("gfedcba") for _ in range(number + 1)]
    assert cloud._parts(subsets) == ["a", "b", "c", "d", "e", cloud.OTHER]
    assert cloud._parts(list("aabbbc")) == ["b", "a", "c"]


def test_the_best_of_all_surfaces_has_the_one_star(drawn: Drawn) -> None:
    grid = itertools.product(["l1", "mse"], ["none", "clamp"], [1.0, 2.0], [0.2, 0.3])
    cells = {
        thresholds.ThresholdCell(loss=loss, boundary=boundary, slope=slope, threshold=threshold): [60.0 + number]
        for number, (loss, boundary, slope, threshold) in enumerate(grid)
    }
    best = thresholds.ThresholdCell(loss="mse", boundary="none", slope=1.0, threshold=0.3)
    cells[best] = [99.0]
    figure, _ = drawn(lambda: thresholds.threshold_surfaces(cells, unit=UNIT, name="thresholds"))
    starred = [
        (place, text.get_text(), text.get_position())
        for place, axes in enumerate(figure.axes)
        for text in axes.texts
        if "★" in text.get_text()
    ]
    assert starred == [(2, "99.00 ★", (1.5, 0.5))]


@pytest.mark.parametrize(("cells", "number"), [([(1.0, 0.2), (1.0, 0.3), (1.0, 0.4), (1.0, 0.5)], 1), ([(1.0, 0.2), (2.0, 0.2)], 0)])
def test_a_heat_map_has_four_cells_at_least(cells: list[tuple[float, float]], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        f"cell {place}": thresholds.ThresholdCell(loss="l1", boundary="none", slope=slope, threshold=threshold)
        for place, (slope, threshold) in enumerate(cells)
    }
    rows = [ResultRow(method="m", label=label, params={}, seed=0, scores={"t": 70.0}) for label in known]
    monkeypatch.setattr(sweep_drawings, "regression_facts", lambda label: SimpleNamespace(cell=known[label]))
    facts: Any = {label: label for label in known}
    assert len(list(sweep_drawings._thresholds(rows, lambda row: 70.0, facts, UNIT))) == number


def test_pictures_with_room_for_a_few_take_untouched_encoders_the_baseline_and_the_best() -> None:
    scores = {"low": [70.0], "eq1": [75.0], "best": [80.0, 82.0], "base": [60.0], "good": [80.0]}
    facts: Any = {label: SimpleNamespace(objective=None if label == "base" else "rcl") for label in scores}
    assert sweep_drawings._shown_first(scores, facts, "eq1") == ["base", "eq1", "best", "good", "low"]


def test_the_curve_of_regulators_is_drawn_at_the_setting_that_has_most_numbers(drawn: Drawn) -> None:
    cells = [("held", 64, 2), ("held", 64, 4), ("held", 64, 6), ("held", 32, 2), ("held", 32, 8), ("plain", 64, 0), ("plain", 32, 0)]
    facts: Any = {
        f"{name} {batch} {number}": SimpleNamespace(
            objective=name, without_bank="plain" if number else None, batch_size=batch, regularizers=None, num_regulators=number
        )
        for name, batch, number in cells
    }
    rows = [ResultRow(method="m", label=label, params={}, seed=0, scores={"t": 70.0 + place}) for place, label in enumerate(facts)]
    _, table = drawn(lambda: next(iter(sweep_drawings._regulators(rows, lambda row: row.scores["t"], facts, UNIT, paper=None))))
    assert [(row["regulators"], row["mean"]) for row in table] == [("0", "75"), ("2", "70"), ("4", "71"), ("6", "72")]


@pytest.fixture(scope="module")
def facts() -> SearchFacts:
    return search_facts(made_up_search(samples=20), None, {})


def test_a_value_of_a_logarithmic_axis_stands_at_its_power(facts: SearchFacts) -> None:
    rate, weight = (
        parallel._column("x", facts.axis(path)) for path in ("training.learning_rate", "methods.rcl.objective.regulator_weight")
    )
    assert [rate.at(value) for value in (1e-6, 1e-5, 1e-4)] == pytest.approx([0.0, 0.5, 1.0])
    assert [weight.at(value) for value in (0.0, 0.25, 1.0)] == pytest.approx([0.0, 0.25, 1.0])


def test_a_trial_that_was_let_go_farther_is_above_one_that_was_pruned_whatever_their_scores(
    facts: SearchFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was pruned has the highest score of all."""

    def lucky(method: SearchedMethod) -> SearchedMethod:
        pruned = next(trial for trial in method.trials if trial.state == "pruned")
        best = pruned.model_copy(update={"rungs": tuple(rung.model_copy(update={"dev": 99.0}) for rung in pruned.rungs)})
        return replace(method, trials=tuple(best if trial is pruned else trial for trial in method.trials))

    facts = replace(facts, methods=tuple(map(lucky, facts.methods)))
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(importance, "importances", lambda *given: asked.append(given))
    importance.method_importances(facts)
    for method, (fields, values, places) in zip(facts.methods, asked, strict=True):
        trials = sorted(method.scored, key=lambda trial: trial.number)
        ranked = [(trial.rungs[-1].share, trial.dev) for trial, _ in sorted(zip(trials, places, strict=True), key=lambda pair: pair[1])]
        assert ranked == sorted(ranked) and len({share for share, _ in ranked}) > 1
        assert [(field.name, field.is_log) for field in fields] == [(path, path == "training.learning_rate") for path in method.fields]
        assert [set(one) for one in values] == [set(method.fields)] * len(trials)


def test_large_counts_are_reported_by_their_thousands() -> None:
    assert [budgets.count_text(value) for value in (999, 1000, 250_000, 1e6, 1.5e6, 2e9)] == ["999", "1k", "250k", "1M", "1.5M", "2G"]
