"""What a score costs: built alone, and with what other trials use too."""

from __future__ import annotations

import csv
import io

import pytest
from matplotlib.image import imread

from sentdist.errors import DataError
from sentdist.evaluation.significance import Difference
from sentdist.plan.stage import Json
from sentdist.report.figures import task_forest
from sentdist.report.selection import Cost, cost_plot, costs, work, work_unit
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord

pytestmark = pytest.mark.pixels


def record(kind: str, key: str, seconds: float, **runtime: Json) -> Record:
    return Record(
        key=key, kind=kind, label=key, place=f"{kind}/{key}", stage={}, inputs=(), created_at="2026-01-02T03:04:05Z", seconds=seconds,
        runtime=runtime, environment={}, results={}, files={},
    )  # fmt: skip


def trial(key: str, cell: str, *stages: str) -> TrialRecord:
    return TrialRecord(key=key, method=cell, cell=cell, name=key, params={}, seed=0, fold=None, train="t", stages=(*stages, key))


RECORDS = {
    "c": record("corpus", "c", 3.0),
    "e": record("train", "e", 60.0, workers=2),
    "b": record("bank", "b", 30.0, workers=2),
    "t1": record("train", "t1", 10.0, workers=2),
    "t2": record("train", "t2", 20.0, workers=2),
    "s1": record("scores", "s1", 1000.0),
    "s2": record("scores", "s2", 1000.0),
    "s3": record("scores", "s3", 1000.0),
}
SWEEP = SweepRecord(
    name="s", about="", recipe={}, baseline=None, paper=None, places={key: found.place for key, found in RECORDS.items()},
    trials=(trial("s1", "one", "c", "e", "b", "t1"), trial("s2", "two", "c", "e", "b", "t2"), trial("s3", "base")),
)  # fmt: skip
TASKS = ["STS12", "STS13", "STS14", "STS15", "STS16"]
SCORES = {"one": [80.0], "two": [81.0], "base": [70.0]}


def test_what_two_trials_use_is_halved_between_them_and_scoring_costs_nobody() -> None:
    found = {one.system: (one.alone_s, one.shared_s) for one in costs(SWEEP, RECORDS, SCORES)}
    shared = 3.0 + 2 * 60.0 + 30.0
    assert found == {"one": (shared + 20.0, shared / 2 + 20.0), "two": (shared + 40.0, shared / 2 + 40.0), "base": (0.0, 0.0)}


def test_parts_with_sharing_add_up_to_what_was_built() -> None:
    built = sum(work(found) for found in RECORDS.values() if found.kind != "scores")
    assert sum(one.shared_s for one in costs(SWEEP, RECORDS, SCORES)) == pytest.approx(built)


def test_a_cell_with_an_unfinished_stage_has_no_cost() -> None:
    known = {key: found for key, found in RECORDS.items() if key != "t2"}
    assert [one.system for one in costs(SWEEP, known, SCORES)] == ["one", "base"]


def test_the_unit_is_that_of_the_machines() -> None:
    assert work_unit(RECORDS) == "worker-seconds"
    on_gpus = {"t": record("train", "t", 1.0, workers=8, gpus_per_worker=1.0)}
    assert work_unit(on_gpus) == "GPU-seconds" and work_unit(on_gpus | RECORDS) == "worker-seconds"
    for share in (0.25, 2.0):  # of a GPU, a worker: what is counted is workers
        assert work_unit({"t": record("train", "t", 1.0, workers=8, gpus_per_worker=share)}) == "worker-seconds"


def test_the_figure_says_what_sharing_spared() -> None:
    drawing = cost_plot(list(costs(SWEEP, RECORDS, SCORES)), unit="score")
    assert "213 worker-seconds instead of 366" in drawing.caption
    rows = {row["system"]: row for row in csv.DictReader(io.StringIO(drawing.table))}
    assert float(rows["two"]["worker-seconds alone"]) == 193.0
    for scores, words in (([70.0, 70.0], "Score against compute"), ([70.0, 71.0], "Score (± 1 standard deviation over seeds) against")):
        drawing = cost_plot([Cost(system="base", scores=scores, alone_s=0.0, shared_s=0.0, num_trials=2)], unit="score")
        assert drawing.png and drawing.caption.startswith(words)
    with pytest.raises(DataError, match="nothing to draw"):
        cost_plot([], unit="score")


def test_a_forest_by_task_has_a_line_for_every_comparison() -> None:
    found = Difference(difference=0.8, low=0.5, high=1.1, p=0.01, table_p=0.03, about="seeds and items")
    drawing = task_forest(
        {"RCL": {"STS12": found, "STS13": found}, "SimCSE": {"STS13": found}}, baseline="Eq. 1", tasks=["STS12", "STS13"], unit="score"
    )
    assert [(row["system"], row["task"]) for row in csv.DictReader(io.StringIO(drawing.table))] == [
        ("RCL", "STS12"), ("RCL", "STS13"), ("SimCSE", "STS13"),
    ]  # fmt: skip
    assert "on one scale" in drawing.caption


def test_of_many_systems_a_figure_names_the_best_at_each_cost_and_its_table_all() -> None:
    many = [
        Cost(system=f"system {place}", scores=[70.0 + place % 10], alone_s=10.0 + place, shared_s=10.0 + place, num_trials=1)
        for place in range(40)
    ]
    drawing = cost_plot(many, unit="score")
    assert "Of 40 systems, those are named that no cheaper one equals" in drawing.caption
    assert [place for place in range(40) if f"<!-- system {place} -->" in drawing.svg] == list(range(10)), "each better than all before"
    assert len(list(csv.DictReader(io.StringIO(drawing.table)))) == 40


def test_a_forest_of_many_systems_draws_those_that_differ_most_and_its_names_are_whole() -> None:
    differences = {
        f"a system of a long name (learning_rate=0.000{place})": {
            task: Difference(difference=place - 1.3, low=place - 2.0, high=place - 0.6, p=0.1, table_p=0.2, about="seeds") for task in TASKS
        }
        for place in range(45)
    }
    drawing = task_forest(differences, baseline="Eq. 1", tasks=TASKS, unit="score")
    assert "The 40 of 45 systems that differ most" in drawing.caption
    assert len(list(csv.DictReader(io.StringIO(drawing.table)))) == 45 * len(TASKS)
    picture = imread(io.BytesIO(drawing.png))
    assert picture[:, :4].min() == 1.0, "white at the left border, where names would be cut"
