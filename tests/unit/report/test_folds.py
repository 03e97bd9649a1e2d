"""Reports of sweeps over folds: a seed counts once all of its folds are scored."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.plan.stage import as_number
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.tasks import TASK_GROUPS
from sentdist.plan.unroll import Trial
from sentdist.report import tables as brief_table_module
from sentdist.report.leaks import sweep_leaks
from sentdist.report.page_head import no_gain
from sentdist.report.printed import STS_COLUMNS, PaperRow, PaperTable, fold_means, with_distinct_rows
from sentdist.report.score_rows import ResultRow, TableRows, means_over_folds
from sentdist.report.sweep_report import Report, report_sweep, result_tables
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import brief_table, build_table
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, load_sweep
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_sweeps import fill_store

TASK, NAME = "retrieval=faqs/mine", "retrieval-faqs-mine"


def _store(folder: Path, *, skip: Callable[[Trial], bool] = lambda trial: False, tasks: Sequence[str] = (TASK,)) -> ArtifactStore:
    """Filled with the scores of three methods with two seeds and three folds."""
    recipe = small_recipe(
        corpus={"source": "faqs/mine", "split": None}, folds={"num": 3}, selection={"task": TASK}, evaluation={"tasks": list(tasks)},
        seeds=[0, 1], baseline="fine_tuned",
    )  # fmt: skip
    store = ArtifactStore(str(folder / "store"))
    fill_store(store, plan_of(recipe), noise=lambda trial: 3.0, num_items={NAME: 20}, skip=skip)
    return store


def _table(report: Report) -> dict[str, dict[str, str]]:
    return {row["label"]: row for row in csv.DictReader(io.StringIO(str(report.files["table1.csv"])))}


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArtifactStore, Report]:
    """A store that lacks a fold of a seed of `rcl`, and its report."""
    store = _store(tmp_path_factory.mktemp("lacking"), skip=lambda trial: (trial.method, trial.seed, trial.fold) == ("rcl", 1, 2))
    return store, report_sweep(store, "small")


def test_a_seed_that_lacks_a_fold_is_left_out_and_reported(lacking: tuple[ArtifactStore, Report]) -> None:
    _, report = lacking
    assert {label: row["num_seeds"] for label, row in _table(report).items()} == {"base": "1", "fine_tuned": "2", "rcl": "1"}
    assert "rcl has scores of 5 of its 6 trials" in report.markdown and "rcl · seed 1 · fold 2" in report.markdown


def test_a_score_that_one_fold_lacks_is_no_mean_of_the_others(tmp_path: Path) -> None:
    store = _store(tmp_path)
    sweep = load_sweep(store, "small")
    records = sweep.records(store)
    key, *others = (trial.key for trial in sweep.trials if (trial.method, trial.seed) == ("rcl", 0))
    records[key] = records[key].model_copy(update={"results": records[key].results | {f"{NAME}.map": None}})
    found = sweep_rows(sweep, store, records)
    assert {(curve.label, curve.seed) for curve in found.curves} >= {("fine_tuned", 0), ("fine_tuned", 1)}, "each seed has its curve"
    (row,) = (row for row in found.of_kind("retrieval", NAME) if (row.method, row.seed) == ("rcl", 0))
    of_mrr = [float(str(records[one].results[f"{NAME}.mrr"])) for one in (key, *others)]
    assert row.scores[f"{NAME}:map"] is None and row.scores[f"{NAME}:mrr"] == pytest.approx(sum(of_mrr) / 3)
    assert {
        len(set(cell)) for one in found.of_kind("retrieval", NAME) for cell in (one.items or {}).values() if isinstance(cell, tuple)
    } == {3}, "its items too"


def test_useb_over_folds_is_the_mean_of_all_folds(tmp_path: Path) -> None:
    """Of trials whose every score is one above the fold before."""
    store = _store(tmp_path, tasks=[TASK, "useb"])
    sweep = load_sweep(store, "small")
    records = sweep.records(store)
    found = sweep_rows(sweep, store, records)
    for row in found.useb:
        trials = [trial for trial in sweep.trials if (trial.cell, trial.seed or 0) == (row.label, row.seed)]
        folds = {as_number(records[trial.key].results["askubuntu"]) or 0.0 for trial in trials}
        assert len(folds) == 3 and row.scores["Avg"] == pytest.approx(sum(folds) / 3)
    assert len(found.useb) == 5
    for key, record in records.items():
        more = {
            f"{task}.by.{one}": value + 10 * (one == "y")
            for task in TASK_GROUPS["useb"]
            for one in "xy"
            if (value := as_number(record.results.get(task)))
        }
        records[key] = record.model_copy(update={"results": {**record.results, **more}})
    alone = {(row.label, row.seed): row.scores for row in sweep_rows(sweep, store, records).useb_by_relation}
    assert len(alone) == 10
    for (label, seed), scores in alone.items():
        if label.endswith(", x"):
            other = alone[f"{label.removesuffix(', x')}, y", seed]
            assert {task: (score or 0) + 10 for task, score in scores.items()} == pytest.approx(other)


def test_the_terminal_counts_seeds_and_spreads_over_them_as_the_report_does(lacking: tuple[ArtifactStore, Report]) -> None:
    store, report = lacking
    sweep = load_sweep(store, "small")
    brief = {row[0]: row[1:] for row in brief_table(sweep, sweep.records(store)).rows}
    column = f"{NAME}:map"
    for label, row in _table(report).items():
        mean, sd = row[f"{column} mean"], row[f"{column} sd"]
        assert brief[label] == (row["num_seeds"], f"{float(mean):.2f}" + (f" ± {float(sd):.2f}" if sd else ""))
    for scores, shown in (([1.0, 1.0, 1.001], "1.00"), ([1.0, 2.0], "1.50 ± 0.71"), ([1.0, None], "1.00"), ([None], "–")):
        assert brief_table_module._spread(scores) == shown


def test_a_row_waits_for_all_of_its_folds() -> None:
    trials = [SimpleNamespace(cell="RCL", method="rcl", seed=0, key=f"fold-{number}") for number in range(3)]
    sweep: Any = SimpleNamespace(trials=trials)
    records: dict[str, Any] = {
        trial.key: SimpleNamespace(results={"faqir": score}) for trial, score in zip(trials, (50.0, 60.0, 70.0), strict=True)
    }
    (row,) = fold_means(sweep, records, {"MAP": "faqir"})
    assert fold_means(sweep, records, {"MAP": "faqir", "Acc@1": "of another version"}) == [], "a row has all columns"
    assert row.label == "RCL" and row.scores == {"MAP": pytest.approx(60.0)}
    named = {"a": None, "b": 1.0, "name": "x"}, {"a": 2.0, "b": 3.0, "name": "x"}
    assert means_over_folds(named) == means_over_folds(named[::-1]) == {"a": None, "b": 2.0}
    del records["fold-1"]
    assert fold_means(sweep, records, {"MAP": "faqir"}) == []


def test_the_average_in_a_terminal_is_of_the_tasks_of_the_report(tmp_path: Path) -> None:
    """A person's own graded pairs are among them, average precision is not."""
    sweep, store, records = _scored(tmp_path, ["sts12", "sts=sts/mine", "twitter-pit", "sts13"])
    found = brief_table(sweep, records)
    table = next(result_tables(sweep, sweep_rows(sweep, store, records), sweep_leaks(sweep, store, records)))
    shown = {row[0]: dict(zip(found.columns, row, strict=True))["average of sts"].partition(" ")[0] for row in found.rows}
    means = {line.label: line.cells["Avg"].summary for line in table.lines}
    assert shown == {label: f"{summary.mean:.2f}" for label, summary in means.items() if summary is not None} and len(shown) == 3


def test_the_end_of_a_sweep_goes_by_the_average_of_the_reports_first_table(tmp_path: Path) -> None:
    """Of tasks that are no graded pairs it read the first alone, and advised people to leave an encoder that is better on the average."""
    sweep, _, records = _scored(tmp_path, ["mr", "cr"])
    for trial in sweep.trials:
        scores = {"mr": 70.0, "cr": 60.0} if trial.train is None else {"mr": 69.0, "cr": 80.0}
        records[trial.key] = records[trial.key].model_copy(update={"results": {**records[trial.key].results, **scores}})
    found = brief_table(sweep, records)
    assert found.columns[-1] == "average of classification" and [row[-1] for row in found.rows] == ["65.00", "74.50", "74.50"]
    assert no_gain(sweep, records) == ""


def _scored(folder: Path, tasks: list[str]) -> tuple[SweepRecord, ArtifactStore, dict[str, Record]]:
    """A sweep of two seeds with its records."""
    store, plan = ArtifactStore(folder / "store"), plan_of(small_recipe(seeds=[0, 1], evaluation={"tasks": tasks}))
    fill_store(store, plan, noise=lambda trial: 1.0, num_items={"sts12": 20, "sts13": 30, "sts-sts-mine": 40})
    sweep = load_sweep(store, plan.recipe.name)
    return sweep, store, sweep.records(store)


SEVEN = STS_COLUMNS[:-1]


BOTH = {"a": "A", "b": "B"}


BESIDE = [  # our tasks, the paper's columns, which of our rows is which of the paper's, number of tables
    (("STS12",), ("STS12",), {"a": "A"}, 0), (("STS12",), ("STS12",), BOTH, 1), (("STS12",), ("STS12",), {"a": "A", "b": "A"}, 0),
    (SEVEN, ("Avg",), BOTH, 1), (SEVEN, ("STS13", "Avg"), BOTH, 1), (("STS12", "STS14"), ("Avg",), BOTH, 0),
    (("STS12", "STS14"), ("STS12", "Avg"), BOTH, 1), ((*SEVEN, "str2022"), ("Avg",), BOTH, 0),
]  # fmt: skip


def test_a_printed_table_stands_beside_two_rows_of_ours_and_an_average_beside_that_of_the_very_same_tasks() -> None:
    for tasks, columns, matches, shown in BESIDE:
        rows = [ResultRow(method=label, label=label, params={}, seed=0, scores=dict.fromkeys(tasks, 70.0)) for label in "ab"]
        given = TableRows(title="t", rows=rows, columns=tasks, average=len(tasks) > 1, measure=TASK_KINDS["sts"].main)
        printed_rows = tuple(PaperRow(label=one, scores=(71.0,) * len(columns)) for one in "AB")
        printed = PaperTable(number="1", caption="c", columns=columns, rows=printed_rows, base=None, paper="p")
        table = build_table(given, baseline=None)
        assert len(list(with_distinct_rows(table, {"1": printed}, {"1": matches}))) == shown, (tasks, columns, matches)
