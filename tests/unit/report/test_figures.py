"""What figures draw and state: their tables of numbers, which are also files of a report, and a few marks that a reader relies on."""

from __future__ import annotations

import csv
import io
import itertools
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sentdist.errors import DataError
from sentdist.evaluation.significance import NOTHING_VARIES, Difference
from sentdist.objectives.regression import l1, mse, smooth_k2, translated_relu
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report import embedding_figures, figures
from sentdist.report.embedding_figures import similarity_maps
from sentdist.report.method_figures import (
    LossShape,
    ThresholdCell,
    link_rows,
    loss_shapes,
    printed_link_rows,
    probe_plot,
    relation_matrix,
    relations_alone,
    threshold_surfaces,
    weight_curves,
)
from sentdist.report.printed import tables_of
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.selection import cost_plot, costs, work
from sentdist.report.style import INK, Drawing, save
from sentdist.report.sweep_drawings import dev_unit, score_unit
from sentdist.report.sweep_report import report_sweep
from sentdist.report.sweep_rows import FOUR, RELATION, TASK_OF_COLUMN, relations_of, useb_scores
from sentdist.report.tables import build_table
from sentdist.stages.scores.build import sampled_pairs
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, TrialRecord
from tests.support.planning import plan_of, with_method
from tests.support.synthetic_sweeps import fill_store

UNIT = "average of 7 tasks (Spearman's correlation × 100)"


def _rows(drawing: Drawing) -> list[dict[str, str]]:
    assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
    return list(csv.DictReader(io.StringIO(drawing.table)))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Drawing]], tuple[Figure, list[dict[str, str]]]]:
    """The figure behind a drawing, and the rows of its table."""
    kept: list[Figure] = []

    def keep(figure: Figure, **named: Any) -> Drawing:
        kept.append(figure)
        return save(figure, **named)

    for module in (embedding_figures, figures, figures):
        monkeypatch.setattr(module, "save", keep)

    def drawn(draw: Callable[[], Drawing]) -> tuple[Figure, list[dict[str, str]]]:
        rows = _rows(draw())
        return kept[-1], rows

    return drawn


Drawn = Callable[[Callable[[], Drawing]], tuple[Figure, list[dict[str, str]]]]


def _difference(points: float, *, p: float = 0.01, table_p: float = 0.2) -> Difference:
    return Difference(difference=points, low=points - 0.5, high=points + 0.5, p=p, table_p=table_p, about="seeds")


def _curves() -> list[figures.LearningCurve]:
    steps = range(200)
    return [
        figures.LearningCurve(label=label, seed=seed, steps=steps, losses=[3 / (1 + step) + seed for step in steps], dev_steps=[99, 199],
                              dev_scores=[80.0, 81.0 + seed])
        for label in ("Eq. 1", "RCL")
        for seed in (0, 1)
    ]  # fmt: skip


def test_learning_curves_are_means_of_bins_and_of_the_seeds_that_are_left() -> None:
    rows = _rows(drawing := figures.learning_curves(_curves(), dev_unit=UNIT, num_systems=4))
    assert "averaged over 2 steps" in drawing.caption and "1 of 4" not in drawing.caption and "2 of 4 trained systems" in drawing.caption
    last = [row for row in rows if row["quantity"] == "dev score"][-1]
    assert (last["label"], last["step"], last["mean"], last["seeds"]) == ("RCL", "199", "81.5", "2")
    steps = range(4 * figures.MOST_BINS)
    rows = _rows(
        figures.learning_curves(
            [figures.LearningCurve(label="a", seed=0, steps=steps, losses=[float(one % 4) for one in steps])], dev_unit=UNIT
        )
    )
    assert [int(row["step"]) for row in rows[:3]] == [2, 6, 10] and {float(row["mean"]) for row in rows} == {1.5}
    short = figures.LearningCurve(label="RCL", seed=1, steps=range(3), losses=[3.0, 3.0, 3.0])
    whole = figures.LearningCurve(label="RCL", seed=0, steps=range(5), losses=[1.0, 1.0, 1.0, 1.0, 1.0])
    rows = _rows(figures.learning_curves([short, whole], dev_unit=UNIT))
    assert [(row["mean"], row["seeds"]) for row in rows] == [("2", "2")] * 3 + [("1", "1")] * 2


def test_each_cell_of_a_heat_map_stands_in_its_row_and_column_and_the_best_is_framed(drawn: Drawn) -> None:
    cells = {("32", "a"): [80.0, 82.0], ("32", "b"): [85.0], ("64", "a"): [70.0], ("128", "b"): [90.0]}
    figure, rows = drawn(lambda: figures.heat_map(cells, unit=UNIT))
    axes = figure.axes[0]
    lines = {label.get_text(): round(at - 0.5) for label, at in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)}
    columns = {label.get_text(): round(at - 0.5) for label, at in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)}
    colours = axes.collections[0].get_array()
    for row in rows:
        assert colours[lines[row["batch size"]], columns[row["φ set"]]] == pytest.approx(float(row["mean"]))
    assert {row["batch size"] + row["φ set"]: row["seeds"] for row in rows} == {"32a": "2", "32b": "1", "64a": "1", "128b": "1"}
    (frame,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
    assert (frame.get_x(), frame.get_y()) == (columns["b"], lines["128"])


def test_a_forest_fills_what_the_whole_table_tells_and_says_what_its_intervals_speak_of(drawn: Drawn) -> None:
    found = {
        "reported": _difference(1.0, table_p=0.01), "by itself alone": _difference(0.9), "worse": _difference(-0.7, p=0.3, table_p=0.9),
        "untested": Difference(difference=0.5, reason=NOTHING_VARIES),
    }  # fmt: skip
    figure, rows = drawn(lambda: figures.forest_plot(found, baseline="Eq. 1", unit=UNIT))
    (axes,) = figure.axes
    lines = [collection for collection in axes.collections if hasattr(collection, "get_segments")]
    ends = [tuple(np.ravel(segment)) for one in lines for segment in one.get_segments()]
    assert [(round(low, 3), place, round(high, 3)) for low, place, high, _ in ends[:3]] == [(0.5, 0, 1.5), (0.4, 1, 1.4), (-1.2, 2, -0.2)]
    (points,) = (one for one in axes.collections if one not in lines)
    assert [list(point) for point in points.get_offsets()] == [[1.0, 0], [0.9, 1], [-0.7, 2], [0.5, 3]]
    assert [same_color(colour, INK) for colour in points.get_facecolor()] == [True, False, False, False]
    assert (rows[1]["p over table"], rows[3]["difference"], rows[3]["low"]) == ("0.2", "0.5", "")
    many = {f"s{place}": {"a": _difference(place % 7 + 0.01 * place), "b": _difference(0.1)} for place in range(figures.MOST_LINES + 9)}
    figure, rows = drawn(lambda: figures.task_forest(many, baseline="Eq. 1", tasks=["a", "b"], unit=UNIT))
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    least = sorted(many, key=lambda name: many[name]["a"].difference)[:9]
    assert len(shown) == figures.MOST_LINES and not {*least} & {*shown} and len(rows) == 2 * len(many)


def test_nothing_to_draw_is_named() -> None:
    draws: list[Callable[[], object]] = [
        lambda: figures.regulators_curve({}, unit=UNIT), lambda: figures.heat_map({}, unit=UNIT), lambda: figures.learning_curves([], dev_unit=UNIT),
        lambda: figures.forest_plot({}, baseline="x", unit=UNIT), lambda: probe_plot({}), lambda: cost_plot([], unit=UNIT), lambda: loss_shapes([]),
        lambda: threshold_surfaces({}, unit=UNIT, name="t"), lambda: weight_curves({}, relation="r", name="w"), lambda: embedding_figures.embedding_map({}, task="t"),
        lambda: relation_matrix(("a", "b"), [np.eye(3)], system="RSE", name="r"), lambda: embedding_figures.singular_spectra({"one": [np.ones(3), np.ones(4)]}),
        lambda: relations_alone([]), lambda: similarity_maps({}, ["a"]), lambda: similarity_maps({"one": np.diag([1.0, 0.0])}, ["a", "b"]),
        lambda: similarity_maps({"one": np.ones((2, 2))}, ["a", "b"], topics=["x"]),
    ]  # fmt: skip
    for draw in draws:
        with pytest.raises(DataError, match="found"):
            draw()


def test_a_map_holds_the_plane_of_most_variance_whatever_the_rotation() -> None:
    draw = np.random.default_rng(0)
    embeddings = np.concatenate([draw.normal(size=(1, 16)) * 4 + draw.normal(size=(20, 16)) for _ in range(2)])
    subsets = ["captions", "news"] * 20
    turned = embeddings @ np.linalg.qr(draw.normal(size=(16, 16)))[0]
    samples = {
        name: embedding_figures.Sample(sentences=[f"s{row}" for row in range(40)], subsets=subsets, embeddings=one)
        for name, one in (("base", embeddings), ("turned", turned))
    }
    drawing = embedding_figures.embedding_map(samples, task="t")
    points = {
        system: np.array([[float(row["x"]), float(row["y"])] for row in _rows(drawing) if row["system"] == system]) for system in samples
    }
    assert points["turned"] == pytest.approx(points["base"], abs=1e-5)  # written with six digits
    assert list(next(iter(drawing.hover.values()))) == [f"s{row} (captions)" for row in range(0, 40, 2)]
    assert sampled_pairs(300) == list(range(0, 300, 2)) and sampled_pairs(450)[-1] == 447 and list(sampled_pairs(5)) == [0, 1, 2, 3, 4]


def test_relations_have_their_cosines_scores_over_a_weight_and_links() -> None:
    one, other = np.eye(3), np.eye(3)
    other[0, 1] = other[1, 0] = -0.5
    rows = _rows(relation_matrix(("a", "b", "c"), [one, other], system="RSE", name="relations"))
    found = next(row for row in rows if (row["relation"], row["other"]) == ("a", "b"))
    assert len(rows) == 9 and (found["mean"], found["sd"], found["seeds"]) == ("-0.25", "0.353553", "2")
    curves = weight_curves({"RSE": {0.0: [70.0, 71.0], 0.5: [72.0, 72.5]}, "other": {0.0: [60.0]}}, relation="a", name="weights")
    assert [(row["system"], row["weight"], row["mean"]) for row in _rows(curves)] == [
        ("RSE", "0", "70.5"),
        ("RSE", "0.5", "72.25"),
        ("other", "0", "60"),
    ]

    def trial(mrr: float) -> dict[str, object]:
        measures = {"mrr": mrr, "hits@1": mrr - 10, "hits@3": mrr + 5, "hits@10": mrr + 10}
        return {f"links.{relation}.{name}": value for relation in ("entailment", "all") for name, value in measures.items()}

    links = link_rows({"RSE": [trial(80.0), trial(82.0)], "base": [{"stsb": 70.0}], "none": []}, task="links")
    assert [row.cells for row in links] == [["RSE", name, "81.0", "71.0", "86.0", "91.0", "2"] for name in ("entailment", "all")]
    assert [row.relation for row in printed_link_rows(tables_of("rse").links, ["entailment", "same-sentence", "all"])] == [
        "entailment",
        "all",
    ]


def test_surfaces_have_the_best_cell_and_shapes_are_those_of_the_losses_that_are_trained() -> None:
    grid = itertools.product(["translated_relu", "smooth_k2"], ["none", "clamp"], [1.0, 2.0], [0.2, 0.25])
    cells = {
        ThresholdCell(loss=loss, boundary=boundary, slope=slope, threshold=threshold): [70.0 + slope, 70.5 + threshold]
        for loss, boundary, slope, threshold in grid
    }
    del cells[ThresholdCell(loss="smooth_k2", boundary="none", slope=1.0, threshold=0.2)]  # not run
    rows = _rows(drawing := threshold_surfaces(cells, unit=UNIT, name="thresholds"))
    assert len(rows) == 15 and {row["seeds"] for row in rows} == {"2"} and rows[0]["mean"] == "70.85"
    assert "k = 2, x0 = 0.25 (Translated ReLU, boundary none)" in drawing.caption
    shapes: list[tuple[LossShape, Any]] = [
        (LossShape(loss="l1"), l1), (LossShape(loss="mse"), mse),
        (LossShape(loss="translated_relu", slope=2.5, threshold=0.25), lambda x: translated_relu(x, slope=2.5, threshold=0.25)),
        (LossShape(loss="smooth_k2", slope=2.0, threshold=0.25), lambda x: smooth_k2(x, slope=2.0, threshold=0.25)),
    ]  # fmt: skip
    for shape, loss in shapes:
        errors = torch.linspace(0, 1, 101, dtype=torch.float64).requires_grad_()
        values = torch.stack([loss(error[None]) for error in errors])
        (slopes,) = torch.autograd.grad(values.sum(), errors)
        assert np.allclose(shape.values(errors.detach().numpy()), values.detach().numpy(), atol=1e-14)
        assert np.allclose(shape.slopes(errors.detach().numpy()), slopes.numpy(), atol=1e-14)
    names = {"L1", "MSE", "Translated ReLU (k = 2.5, x0 = 0.25)", "Smooth K2 (k = 2, x0 = 0.25)"}
    assert {row["loss"] for row in _rows(loss_shapes([shape for shape, _ in shapes]))} == names


def _record(kind: str, key: str, seconds: float, **runtime: Json) -> Record:
    return Record(
        key=key, kind=kind, label=key, place=f"{kind}/{key}", stage={}, inputs=(), created_at="2026-01-02T03:04:05Z", seconds=seconds,
        runtime=runtime, environment={}, results={}, files={},
    )  # fmt: skip


def _trial(key: str, cell: str, *stages: str) -> TrialRecord:
    return TrialRecord(key=key, method=cell, cell=cell, name=key, params={}, seed=0, fold=None, train="t", stages=(*stages, key))


def test_what_two_trials_use_is_halved_between_them_and_scoring_costs_nobody() -> None:
    made = [
        _record("corpus", "c", 3.0), _record("train", "e", 60.0, workers=2), _record("bank", "b", 30.0, workers=2), _record("train", "t1", 10.0, workers=2),
        _record("train", "t2", 20.0, workers=2), *(_record("scores", f"s{number}", 1000.0) for number in (1, 2, 3)),
    ]  # fmt: skip
    records = {one.key: one for one in made}
    trials = (_trial("s1", "one", "c", "e", "b", "t1"), _trial("s2", "two", "c", "e", "b", "t2"), _trial("s3", "base"))
    sweep = SweepRecord(
        name="s", about="", recipe={}, baseline=None, paper=None, places={one.key: one.place for one in made}, trials=trials
    )
    scores = {"one": [80.0], "two": [81.0], "base": [70.0]}
    found = list(costs(sweep, records, scores))
    shared = 3.0 + 2 * 60.0 + 30.0
    assert {one.system: (one.alone_s, one.shared_s) for one in found} == {
        "one": (shared + 20.0, shared / 2 + 20.0), "two": (shared + 40.0, shared / 2 + 40.0), "base": (0.0, 0.0),
    }  # fmt: skip
    assert sum(one.shared_s for one in found) == pytest.approx(sum(work(one) for one in made if one.kind != "scores"))
    assert [one.system for one in costs(sweep, {key: one for key, one in records.items() if key != "t2"}, scores)] == ["one", "base"], (
        "t2 is not finished"
    )
    drawing = cost_plot(found, unit="score")
    assert "213 worker-seconds instead of 366" in drawing.caption
    assert {row["system"]: float(row["worker-seconds alone"]) for row in _rows(drawing)} == {"one": 173.0, "two": 193.0, "base": 0.0}


def test_means_over_seeds_of_each_system_and_relation_of_useb() -> None:
    rows = [
        ResultRow(method="m", label=f"{label}, {relation}", params={RELATION: relation}, seed=seed,
                  scores={task: 50.0 + seed + len(relation) + place for place, task in enumerate(FOUR)})
        for label in ("a, b", "c") for relation in ("x", "yy") for seed in (0, 1)
    ]  # fmt: skip
    plain = ResultRow(method="p", label="plain", params={}, seed=0, scores={**dict.fromkeys(FOUR, 40.0), FOUR[0]: None})
    found = {(row["system"], row["relation"], row["task"]): row for row in _rows(relations_alone(rows, [plain]))}
    assert len(found) == 2 * 2 * 4 + 3 and (found["a, b", "yy", FOUR[1]]["mean"], found["a, b", "yy", FOUR[1]]["seeds"]) == ("53.5", "2")
    assert float(found["plain", "", FOUR[3]]["mean"]) == 40.0 and found["plain", "", FOUR[3]]["sd"] == ""
    results: dict[str, float | None] = {}
    for number, task in enumerate(TASK_OF_COLUMN.values()):
        results |= {f"{task}.by.x": 50.0 + number, f"{task}.by.y": 40.0 + number}
    results |= {"twitter-url.by.y": 60.0, "twitter-pit.by.y": 30.0, "scidocs-coview.by.y": 90.0}
    best, x, y = (useb_scores(results, relation) for relation in (None, "x", "y"))
    assert relations_of(results) == ("x", "y")
    assert (x["TURL"], x["PIT"], x["TwitterPara Avg"]) == (best["TURL"], best["PIT"], best["TwitterPara Avg"]) == (52.0, 53.0, 52.5)
    assert (y["TURL"], y["PIT"], y["TwitterPara Avg"]) == (60.0, 30.0, 45.0)
    assert best["SciDocs Avg"] == y["SciDocs Avg"] == pytest.approx((44 + 45 + 46 + 90) / 4)


def test_a_dev_score_and_a_score_have_the_unit_of_their_measure() -> None:
    titles = {"stsb-dev": "Spearman", "sts=my/file@dev": "Spearman", "transfer-dev": "accuracy", "stsb-dev+sickr-dev": "Spearman", "scidocs-dev": "MAP",
              "askubuntu-dev+cqadupstack-dev+twitter": "mean of MAP, MAP@100 and average precision"}  # fmt: skip
    assert {task: dev_unit({"selection": {"task": task}}) for task in titles} == {
        task: f"{task} ({title} × 100)" for task, title in titles.items()
    }
    assert dev_unit({}) == "dev score"
    rows = [ResultRow(method="m", label="m", params={}, seed=0, scores={"a": 0.5, "b": 0.7}, is_fixed=True)]
    for measure in (TASK_KINDS["sts"].main, TASK_KINDS["pairs"].main):
        tables = [
            build_table(TableRows(title="t", rows=rows, columns=["a", "b"], measure=measure, average=one), baseline=None)
            for one in (True, False)
        ]
        assert [score_unit(table) for table in tables] == [f"average of 2 tasks ({measure.unit})", f"b ({measure.unit})"]


SETS: Json = [[0.01], [0.01, 0.02], [0.01, 0.02, 0.05], [0.01, 0.02, 0.05, 0.1]]


EQ_1: Json = {"objective": {"name": "info_nce"}}


def _files(folder: Path, *, task: str = "stsb", sweep: Json = None, paper: str | None = None, **methods: Json) -> dict[str, str | bytes]:
    """Of the report of φ sets beside Eq. 1, with two seeds, and of what is given besides."""
    recipe = recipe_from_values(
        with_method(**methods)
        | {"seeds": [0, 1], "baseline": "fine_tuned", "paper": paper, "evaluation": {"tasks": [task]}}
        | {"sweep": {"methods.rcl.phis": SETS, **(sweep if isinstance(sweep, dict) else {})}},
        where="small.yaml",
    )
    store = ArtifactStore(folder / "store")
    fill_store(store, plan_of(recipe), noise=lambda trial: 1.0 + 0.01 * len(trial.cell), num_items={task: 30})
    return report_sweep(store, "small").files


def test_places_of_a_grid_are_means_over_seeds_of_one_cell(tmp_path: Path) -> None:
    """What leaves another attention dropout is not the point of Eq. 1."""
    files = _files(tmp_path, paper="rcl", dropped=EQ_1 | {"regularizers": {"attention_dropout": 0.1}})  # type: ignore[operator]
    grid, regulators = (list(csv.DictReader(io.StringIO(str(files[name])))) for name in ("grid.csv", "regulators.csv"))
    sets = ("{0.01}", "{0.01, 0.02}", "{0.01, 0.02, 0.05}", "{0.01, 0.02, 0.05, 0.1}")
    assert [(row["φ set"], row["seeds"]) for row in grid] == [(one, "2") for one in sets]
    ours = [(row["regulators"], row["seeds"]) for row in regulators if row["source"] == "ours"]
    assert ours == [(str(number), "2") for number in (0, 2, 4, 6, 8)] and len(ours) < len(regulators), "the paper's curve stands beside"
