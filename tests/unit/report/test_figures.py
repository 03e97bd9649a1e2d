"""The numbers that figures draw, which are also files of a report."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from sentdist.evaluation.significance import NOTHING_VARIES, Difference
from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.stage import Json
from sentdist.report import figures
from sentdist.report.comparisons import References
from sentdist.report.method_figures import LINK_HEADER, link_rows, means_table, relation_drawings
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.style import Drawing, save, styles_of
from sentdist.report.sweep_drawings import costs, score_unit, work
from sentdist.report.sweep_report import report_sweep
from sentdist.report.sweep_rows import TASK_OF_COLUMN, relations_of, useb_scores
from sentdist.report.tables import build_table
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.tasks.kinds import TASK_KINDS
from tests.support.planning import plan_of, with_method
from tests.support.synthetic_sweeps import fill_store

UNIT = "average of 7 tasks (Spearman's correlation × 100)"


def _rows(drawing: Drawing) -> list[dict[str, str]]:
    assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
    return list(csv.DictReader(io.StringIO(drawing.table)))


def _learning(*curves: figures.LearningCurve, num_systems: int = 2) -> Drawing:
    styles = styles_of(curve.label for curve in curves)
    return figures.learning_curves(curves, dev_unit=UNIT, styles=styles, objectives={}, num_systems=num_systems)


def test_learning_curves_are_means_of_bins_and_of_the_seeds_that_are_left() -> None:
    steps = range(4 * figures.MOST_BINS)
    one = figures.LearningCurve(
        label="a", seed=0, steps=steps, losses=[float(step % 4) for step in steps], dev_steps=[9], dev_scores=[80.0]
    )
    rows = _rows(drawing := _learning(one))
    assert [int(row["step"]) for row in rows[:3]] == [2, 6, 10] and {float(row["mean"]) for row in rows[:-1]} == {1.5}
    assert rows[-1]["quantity"] == "dev score" and rows[-1]["mean"] == "80"
    assert "averaged over 4 steps" in drawing.caption and "1 of 2 trained systems" in drawing.caption
    short = figures.LearningCurve(label="RCL", seed=1, steps=range(3), losses=[3.0] * 3)
    whole = figures.LearningCurve(label="RCL", seed=0, steps=range(5), losses=[1.0] * 5)
    assert [(row["mean"], row["seeds"]) for row in _rows(_learning(short, whole))] == [("2", "2")] * 3 + [("1", "1")] * 2


def test_a_forest_has_every_point_and_its_p_over_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = []
    monkeypatch.setattr(figures, "save", lambda figure, **named: spans.append(figure.axes[0].get_xlim()) or save(figure, **named))
    far = Difference(difference=-9.0, low=-12.0, high=-6.0, p=0.01, table_p=0.2, about="seeds")
    found = {"far": far, "untested": Difference(difference=0.5, reason=NOTHING_VARIES)}
    references = References(of=dict.fromkeys(found, "Eq. 1"), title="Eq. 1")
    rows = _rows(figures.forest_plot(found, column="a", references=references, unit=UNIT))
    assert (rows[0]["p over table"], rows[1]["difference"], rows[1]["low"]) == ("0.2", "0.5", "")
    assert spans[0][0] < -12.0 and spans[0][1] > 0.5
    many = {f"s{place}": Difference(difference=float(place)) for place in range(figures.MOST_LINES + 9)}
    drawing = figures.forest_plot(many, column="a", references=references, unit=UNIT)
    assert len(_rows(drawing)) == len(many) and f"The {figures.MOST_LINES} of {len(many)}" in drawing.caption


def test_cells_and_curves_are_means_over_seeds() -> None:
    cells = {("32", "a"): [80.0, 82.0], ("32", "b"): [85.0], ("64", "a"): [70.0]}
    rows = _rows(figures.heat_map({"": cells}, titles=("batch size", "φ set"), unit=UNIT, name="grid", caption="c"))
    assert [(row["batch size"] + row["φ set"], row["mean"], row["seeds"]) for row in rows] == [
        ("32a", "81", "2"), ("32b", "85", "1"), ("64a", "70", "1"),
    ]  # fmt: skip
    panels = {"one": {"RSE": {0.0: [70.0, 71.0], 0.5: [72.0]}}, "two": {"paper": {0.0: [60.0]}}}
    rows = _rows(figures.curves(panels, x="weight", unit=UNIT, name="weights", caption="c"))
    assert [(row["panel"], row["weight"], row["mean"]) for row in rows] == [("one", "0", "70.5"), ("one", "0.5", "72"), ("two", "0", "60")]


def test_relations_have_their_cosines_and_links() -> None:
    def trial(mrr: float) -> dict[str, object]:
        measures = {"mrr": mrr, "hits@1": mrr - 10, "hits@3": mrr + 5, "hits@10": mrr + 10}
        return {f"links.{relation}.{name}": value for relation in ("entailment", "all") for name, value in measures.items()}

    rows = link_rows({"RSE": [trial(80.0), trial(82.0)], "base": [{"stsb": 70.0}]})
    assert rows == [["RSE", name, "81.0", "71.0", "86.0", "91.0", "2"] for name in ("entailment", "all")]
    assert {len(row) for row in rows} == {len(LINK_HEADER)}
    assert means_table({"a": [{"x": 1.0}, {"x": 2.0}], "b": [{}]}, ["x"]) == [["a", "1.50"]]
    results: dict[str, Json] = {
        "relations": {"names": ["a", "b"], "cosines": [[1.0, -0.5], [-0.5, 1.0]]},
        "weight_curve": {"relation": "a", "weights": [0.0, 1.0], "scores": [70.0, None]},
    }
    record = _record("scores", "s", 1.0).model_copy(update={"results": results})
    sweep = SweepRecord(name="s", about="", recipe={}, baseline=None, paper=None, places={}, trials=(_trial("s", "RSE"),))
    matrix, weights = relation_drawings(sweep, {"s": record})
    assert [row["mean"] for row in _rows(matrix)] == ["1", "-0.5", "-0.5", "1"] and [row["mean"] for row in _rows(weights)] == ["70"]


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
    drawing = figures.cost_plot(found, unit="score", work_unit="worker-seconds", styles=styles_of(scores))
    assert "213 worker-seconds instead of 366" in drawing.caption
    assert {row["system"]: float(row["worker-seconds alone"]) for row in _rows(drawing)} == {"one": 173.0, "two": 193.0, "base": 0.0}


def test_the_relation_of_a_task_of_useb_is_the_best_over_its_parts() -> None:
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
    ours = [(row["regulators"], row["seeds"]) for row in regulators if row["system"] == "ours"]
    assert ours == [(str(number), "2") for number in (0, 2, 4, 6, 8)] and len(ours) < len(regulators), "the paper's curve stands beside"
