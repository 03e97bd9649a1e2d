"""A row over folds stands beside a printed one only when all of its folds are there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.leaks import sweep_leaks
from sentdist.report.page_head import no_gain
from sentdist.report.printed import STS_COLUMNS, PaperRow, PaperTable, fold_means, with_distinct_rows
from sentdist.report.score_rows import ResultRow, TableRows, means_over_folds
from sentdist.report.sweep_report import result_tables
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import brief_table, build_table
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, load_sweep
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_sweeps import fill_store


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


def test_the_average_in_a_terminal_is_of_seeds_that_have_every_task(tmp_path: Path) -> None:
    sweep, store, records = _scored(tmp_path, ["sts12", "sts13"])
    _, other = (trial.key for trial in sweep.trials if trial.method == "rcl")
    records[other] = records[other].model_copy(update={"results": records[other].results | {"sts13": None}})
    found = brief_table(sweep, records)
    first = next(one for one in sweep_rows(sweep, store, records).of_kind("sts") if one.method == "rcl")
    assert found.columns == ("system", "n", "sts12", "sts13", "average of sts")
    (row,) = (row for row in found.rows if row[0] == "rcl")
    assert row[1] == "2" and row[3:] == (
        f"{first.scores['STS13']:.2f}",
        f"{((first.scores['STS12'] or 0) + (first.scores['STS13'] or 0)) / 2:.2f}",
    )


@pytest.mark.parametrize("other", ["sts=sts/mine", "twitter-pit"])
def test_the_average_in_a_terminal_is_of_the_tasks_of_the_report(other: str, tmp_path: Path) -> None:
    """A person's own graded pairs are among them, average precision is not."""
    sweep, store, records = _scored(tmp_path, ["sts12", other, "sts13"])
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


@pytest.mark.parametrize(("matches", "shown"), [({"a": "A"}, 0), ({"a": "A", "b": "B"}, 1), ({"a": "A", "b": "A"}, 0)])
def test_a_printed_table_stands_beside_ours_where_two_rows_have_one_of_ours_each(matches: dict[str, str], shown: int) -> None:
    rows = [ResultRow(method=label, label=label, params={}, seed=0, scores={"STS12": 70.0}) for label in "ab"]
    table = build_table(TableRows(title="t", rows=rows, columns=["STS12"], average=False, measure=TASK_KINDS["sts"].main), baseline=None)
    printed = PaperTable(
        number="1", caption="c", columns=("STS12",), rows=tuple(PaperRow(label=one, scores=(71.0,)) for one in "AB"), base=None, paper="p"
    )
    assert len(list(with_distinct_rows(table, {"1": printed}, {"1": matches}))) == shown


SEVEN = STS_COLUMNS[:-1]


@pytest.mark.parametrize(
    ("tasks", "columns", "shown"),
    [
        (SEVEN, ("Avg",), 1), (SEVEN, ("STS13", "Avg"), 1), (("STS12", "STS14"), ("Avg",), 0), (("STS12", "STS14"), ("STS13", "Avg"), 0),
        (("STS12", "STS14"), ("STS12", "Avg"), 1), ((*SEVEN, "str2022"), ("Avg",), 0),
    ],
)  # fmt: skip
def test_an_average_alone_is_compared_where_the_paper_printed_nothing_else(
    tasks: tuple[str, ...], columns: tuple[str, ...], shown: int
) -> None:
    """And where it is one over the very same tasks."""
    rows = [ResultRow(method=label, label=label, params={}, seed=0, scores=dict.fromkeys(tasks, 70.0)) for label in "ab"]
    table = build_table(TableRows(title="t", rows=rows, columns=tasks, average=True, measure=TASK_KINDS["sts"].main), baseline=None)
    printed = PaperTable(
        number="1", caption="c", columns=columns, rows=tuple(PaperRow(label=one, scores=(71.0,) * len(columns)) for one in "AB"), base=None,
        paper="p",
    )  # fmt: skip
    assert len(list(with_distinct_rows(table, {"1": printed}, {"1": {"a": "A", "b": "B"}}))) == shown
