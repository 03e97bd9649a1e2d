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
from matplotlib.colors import same_color, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sentdist.evaluation.search_statistics import Importance
from sentdist.evaluation.significance import Difference
from sentdist.report import embedding_figures as cloud
from sentdist.report import embedding_figures as similarity
from sentdist.report import figures, sweep_drawings
from sentdist.report import figures as forest
from sentdist.report import method_figures as probes
from sentdist.report import method_figures as thresholds
from sentdist.report import method_figures as useb_figure
from sentdist.report import selection as cost
from sentdist.report.score_rows import ResultRow
from sentdist.report.search import budgets, parallel
from sentdist.report.search import parallel as importance
from sentdist.report.search.facts import SearchedMethod, SearchFacts, search_facts
from sentdist.report.style import INK, Drawing, inline_svg, legend_columns, save, styles_of
from sentdist.report.sweep_rows import FOUR, RELATION
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


def test_the_band_of_regulators_is_the_mean_and_a_deviation_to_both_sides(drawn: Drawn) -> None:
    scores, paper = {0: [60.0, 68.0], 2: [81.0]}, {0: 50.0, 4: 52.0}
    figure, rows = drawn(lambda: figures.regulators_curve(scores, paper=paper, unit=UNIT))
    ours, theirs = figure.axes
    sd = float(rows[0]["sd"])
    assert _ends(ours.collections[0]) == pytest.approx((64.0 - sd, 64.0 + sd), abs=1e-3)
    assert [list(line.get_ydata()) for line in ours.lines] == [[64.0, 81.0], [60.0, 68.0], [81.0]]
    spans = [axes.get_ylim() for axes in figure.axes]
    assert np.ptp(spans[0]) == pytest.approx(np.ptp(spans[1])), "so that slopes compare"
    for axes, low, high in ((ours, 64.0 - sd, 81.0), (theirs, 50.0, 52.0)):
        assert axes.get_ylim()[0] < low and axes.get_ylim()[1] > high and sum(axes.get_ylim()) == pytest.approx(low + high, abs=1e-3)


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


def test_losses_are_means_of_bins_that_stand_at_the_middle_of_their_steps(drawn: Drawn) -> None:
    steps = range(4 * figures.MOST_BINS)
    curve = figures.LearningCurve(label="RCL", seed=0, steps=steps, losses=[float(step % 4) for step in steps])
    figure, rows = drawn(lambda: figures.learning_curves([curve], dev_unit=UNIT))
    assert [int(row["step"]) for row in rows[:3]] == [2, 6, 10] and {float(row["mean"]) for row in rows} == {1.5}
    assert list(figure.axes[0].lines[0].get_xdata()[:3]) == [2, 6, 10]


def test_words_beneath_learning_curves_are_said_where_they_hold() -> None:
    few = figures.LearningCurve(label="RCL", seed=0, steps=range(5), losses=[1.0] * 5)
    assert "averaged over" not in figures.learning_curves([few], dev_unit=UNIT).caption
    assert "trained systems" not in figures.learning_curves([few], dev_unit=UNIT, num_systems=1).caption
    assert "1 of 4 trained systems: the baseline and the best." in figures.learning_curves([few], dev_unit=UNIT, num_systems=4).caption
    assert "band" not in figures.learning_curves([few], dev_unit=UNIT).caption
    assert "; band: ± 1 standard" in figures.learning_curves([few, replace(few, seed=1)], dev_unit=UNIT).caption


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


def test_of_more_systems_than_have_room_a_forest_draws_those_that_differ_most(drawn: Drawn) -> None:
    many = {
        f"s{place}": {"a": _difference(float(place % 7) + 0.01 * place), "b": _difference(0.1)} for place in range(forest.MOST_LINES + 9)
    }
    figure, _ = drawn(lambda: forest.task_forest(many, baseline="Eq. 1", tasks=["a", "b"], unit=UNIT))
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    least = sorted(many, key=lambda name: many[name]["a"].difference)[:9]
    assert len(shown) == forest.MOST_LINES and not {*least} & {*shown} and shown == [name for name in many if name in shown]


def test_a_point_of_a_map_says_its_own_sentence(drawn: Drawn) -> None:
    draw = np.random.default_rng(0)
    subsets = ["news", "captions"] * 10
    sample = cloud.Sample(sentences=[f"sentence {row}" for row in range(20)], subsets=subsets, embeddings=draw.normal(size=(20, 6)) + 3.0)
    drawing = cloud.embedding_map({"one": sample}, task="t")
    assert [list(texts) for texts in drawing.hover.values()] == [
        [f"sentence {row} ({subsets[row]})" for row in rows] for rows in (range(0, 20, 2), range(1, 20, 2))
    ]
    figure, rows = drawn(lambda: cloud.embedding_map({"one": sample}, task="t"))
    for place, points in enumerate(figure.axes[0].collections):
        at = [(float(row["x"]), float(row["y"])) for row in rows[place::2]]
        assert np.asarray(points.get_offsets()) == pytest.approx(np.array(at), abs=1e-5)
    assert np.mean([float(row["x"]) for row in rows]) == pytest.approx(0.0, abs=1e-5), "around their middle"


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


def test_the_title_and_label_of_a_drawing_are_escaped_and_its_ids_its_own() -> None:
    svg = '<svg viewBox="0 0 1 1"><g id="a"><use x="1"/></g><path clip-path="url(#c)"/><use href="#a"/></svg>'
    drawing = Drawing(name="map", caption='a "<b>" & c', svg=svg, png=b"", table="", hover={"a": ["<i> & j"]})
    page = inline_svg(drawing)
    assert 'aria-label="a &quot;&lt;b&gt;&quot; &amp; c"' in page and "<title>&lt;i&gt; &amp; j</title>" in page
    assert 'id="map-a"' in page and "url(#map-c)" in page and 'href="#map-a"' in page


def test_a_legend_has_a_column_at_least() -> None:
    assert legend_columns(["x" * 400], width_in=3.0) == 1 == legend_columns([], width_in=3.0)


def test_similarities_below_0_widen_the_scale_and_lines_part_the_topics(drawn: Drawn) -> None:
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.2], [-1.0, 0.0]])
    topics = ["a", "a", "b", "b"]
    figure, rows = drawn(lambda: similarity.similarity_maps({"one": vectors}, list("wxyz"), topics=topics))
    axes = figure.axes[0]
    low = min(float(row["cosine"]) for row in rows)
    assert low < -0.9 and axes.images[0].get_clim() == pytest.approx((low, 1.0))
    assert {(row["sentence1"], row["sentence2"]) for row in rows} == set(itertools.combinations("wxyz", 2))
    assert [line.get_ydata()[0] for line in axes.lines[::2]] == [1.5], "between the second and the third"
    found = {(row["sentence1"], row["sentence2"]): float(row["cosine"]) for row in rows}
    gap = (found["w", "x"] + found["y", "z"]) / 2 - np.mean([found[one, other] for one in "wx" for other in "yz"])
    assert f"one {gap:.2f}." in similarity.similarity_maps({"one": vectors}, list("wxyz"), topics=topics).caption
    assert [similarity._short(value) for value in (-0.001, 0.5, -0.25, 1.0)] == [".00", ".50", "−.25", "1"]


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


def test_probes_have_their_own_means_and_deviations_in_each_panel(drawn: Drawn) -> None:
    found = {"one": {"tags_from_pos": [0.8, 0.9], "tags_from_bow": [0.2], "words_from_pos": [0.1, 0.3], "words_from_bow": [0.6]}}
    figure, rows = drawn(lambda: probes.probe_plot(found))
    for axes, target in zip(figure.axes, probes.TARGETS, strict=True):
        for part, container in zip(probes.PARTS, list[Any](axes.containers), strict=True):
            (row,) = (row for row in rows if (row["target"], row["part"]) == (target, part))
            values = found["one"][f"{target}_from_{part}"]
            mean, sd = float(np.mean(values)), float(row["sd"] or 0)
            assert float(row["mean"]) == pytest.approx(mean, abs=1e-5)
            (bar,) = container.lines[2][0].get_segments()
            assert bar[:, 0] == pytest.approx([mean - sd, mean + sd], abs=1e-5)


def test_relations_stand_beside_their_names_with_a_deviation_to_both_sides(drawn: Drawn) -> None:
    rows = [
        ResultRow(method="m", label=f"m, {relation}", params={RELATION: relation}, seed=seed,
                  scores={task: 50.0 + 10 * number + seed for task in FOUR})
        for number, relation in enumerate(("entailment", "duplicate"))
        for seed in (0, 1)
    ]  # fmt: skip
    figure, _ = drawn(lambda: useb_figure.relations_alone(rows))
    for place, axes in enumerate(figure.axes[:4]):
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert axes.get_yticks().tolist() == [1, 0], "the first above"
        assert names == (["entailment", "duplicate"] if place % 2 == 0 else ["", ""])
        bars = [line for line in axes.lines if len(line.get_xdata()) == 2]
        assert [list(line.get_ydata()) for line in bars] == [[1.0, 1.0], [0.0, 0.0]]
        for line, middle in zip(bars, (50.5, 60.5), strict=True):
            assert line.get_xdata() == pytest.approx([middle - 0.5**0.5, middle + 0.5**0.5])


def test_a_cost_stands_at_what_it_takes_with_sharing_and_alone(drawn: Drawn) -> None:
    found = [
        cost.Cost(system=name, scores=scores, shared_s=shared, alone_s=alone, num_trials=trials)
        for name, scores, shared, alone, trials in (
            ("one", [80.0, 82.0], 10.0, 30.0, 2), ("two", [80.5], 20.0, 20.0, 1), ("three", [81.5], 25.0, 26.0, 1), ("lost", [1.0], 5.0, 5.0, 3),
        )
    ]  # fmt: skip
    figure, _ = drawn(lambda: cost.cost_plot(found, unit=UNIT))
    axes = figure.axes[0]
    assert [container.lines[0].get_xydata()[0].tolist() for container in list[Any](axes.containers)] == [
        [10.0, 81.0],
        [20.0, 80.5],
        [25.0, 81.5],
        [5.0, 1.0],
    ]
    hollow = [line.get_xydata()[0].tolist() for line in axes.lines if line.get_marker() == "o" and same_color(line.get_color(), "white")]
    assert hollow == [[30.0, 81.0], [26.0, 81.5]]
    caption = cost.cost_plot(found, unit=UNIT).caption
    assert "All trials: 80 worker-seconds instead of 121." in caption and axes.get_ylim()[0] < 1.0
    alike = [cost.Cost(system=name, scores=[70.0], shared_s=1.0, alone_s=1.0, num_trials=1) for name in "ab"]
    low, high = drawn(lambda: cost.cost_plot(alike, unit=UNIT))[0].axes[0].get_ylim()
    assert low < 70.0 < high


def test_of_many_systems_those_are_named_that_no_cheaper_one_equals_as_stages_are_shared() -> None:
    many = [
        cost.Cost(system=f"s{place}", scores=[70.0 + place], shared_s=10.0 + place, alone_s=100.0 - place, num_trials=1)
        for place in range(40)
    ]
    assert cost._named(many, [one.scores[0] for one in many]) == list(range(40))[-cost.MOST_NAMES :]
    equal = [cost.Cost(system=f"s{place}", scores=[70.0], shared_s=10.0 + place, alone_s=50.0, num_trials=1) for place in range(40)]
    assert cost._named(equal, [70.0] * 40) == [0], "the cheapest of equal ones"


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


def test_fields_that_luck_tells_as_well_are_pale(drawn: Drawn, facts: SearchFacts) -> None:
    shares = {"training.learning_rate": 0.8, "methods.rcl.phis": 0.2}
    reported = [Importance(field=field, share=share, low=0.0, high=1.0, by_luck=0.3, everywhere=0.5) for field, share in shares.items()]
    found = {method.name: reported if method.name == "rcl" else None for method in facts.methods}
    styles = styles_of([method.title for method in facts.methods])
    figure, _ = drawn(lambda: importance.importance_drawing(facts, found, styles=styles))  # type: ignore[arg-type, return-value]
    first, second = (patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle))
    colour = next(styles[method.title].color for method in facts.methods if method.name == "rcl")
    assert same_color(first.get_facecolor(), colour) and (first.get_width(), second.get_width()) == (0.8, 0.2)
    assert sum(to_rgba(second.get_facecolor())[:3]) > sum(to_rgba(colour)[:3])


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


def test_trials_that_lie_below_the_axis_of_dev_scores_are_counted_whatever_their_state(
    facts: SearchFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    devs = [trial.dev or 0.0 for method in facts.methods for trial in method.scored if trial.state == "finished"]
    low, high = float(np.median(devs)), max(devs) + 0.1
    for module in (budgets, parallel):
        monkeypatch.setattr(module, "dev_span", lambda scores: (low, high))
    styles = styles_of([method.title for method in facts.methods])
    of_state = {state: [trial.dev or 0.0 for method in facts.methods for trial in method.scored if trial.state == state]
                for state in ("finished", "pruned")}  # fmt: skip
    floor = low + 0.02 * (high - low)
    hidden = {state: sum(dev < floor for dev in devs) for state, devs in of_state.items()}
    assert all(hidden.values())
    assert f" {sum(hidden.values())} lie below" in budgets.price_drawing(facts, dev_unit=UNIT, styles=styles).caption
    for method in facts.methods:
        below = sum((trial.dev or 0.0) < low for trial in method.scored if trial.state in ("finished", "pruned"))
        caption = parallel.parallel_drawing(facts, method, order=list(method.fields), name="x").caption
        assert f"{below} lie below the dev axis" in caption and below > sum(
            trial.state == "finished" and (trial.dev or 0.0) < low for trial in method.scored
        )


def test_large_counts_are_reported_by_their_thousands() -> None:
    assert [budgets.count_text(value) for value in (999, 1000, 250_000, 1e6, 1.5e6, 2e9)] == ["999", "1k", "250k", "1M", "1.5M", "2G"]
