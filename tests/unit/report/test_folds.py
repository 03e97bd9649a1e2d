"""Reports of sweeps over folds: a seed counts once all of its folds are scored."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.unroll import Trial
from sentdist.report.printed import STS_COLUMNS, PaperRow, PaperTable, fold_means, with_distinct_rows
from sentdist.report.score_rows import ResultRow, TableRows, means_over_folds
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import build_table
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep
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
