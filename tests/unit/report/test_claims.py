"""Sentences of a report claim what was tested, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sentdist.evaluation.significance import Difference
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report import tables as cell_text
from sentdist.report.comparisons import Comparison, p_text
from sentdist.report.page_head import finding
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.sweep import SweepRecord

SWEEP = SweepRecord(name="s", about="", recipe={"methods": {"a": {"objective": {}}}}, baseline=None, paper=None, places={}, trials=())


def _table(scores: dict[str, Sequence[float]], *, baseline: str | None = None, tasks: Sequence[str] = ("t",)) -> ResultTable:
    """One seed a score, the same on every task; `base` is a checkpoint."""
    rows = [
        ResultRow(method=label, label=label, params={}, seed=seed, scores=dict.fromkeys(tasks, score), is_fixed=label == "base")
        for label, values in scores.items()
        for seed, score in enumerate(values)
    ]
    return build_table(
        TableRows(title="t", rows=rows, columns=tasks, average=len(tasks) > 1, measure=TASK_KINDS["sts"].main), baseline=baseline
    )


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"a": [80.0], "b": [81.0]}, "; b has the highest, 81.00."),
        ({"a": [80.0, 80.1, 80.3], "b": [90.0, 90.2, 90.1]}, "; b has the highest, 90.10, which is significantly better."),
        ({"a": [80.0, 80.1, 80.3], "b": [90.0, 90.0, 90.0]}, "; b has the highest, 90.00."),
        ({"a": [80.0, 83.1, 85.3], "b": [84.0, 90.2, 84.1]}, "; b has the highest, 86.10."),
        ({"a": [100.0], "b": [100.0], "c": [99.0]}, ", the highest of the table; 1 other row has it, too."),
        ({"a": [80.0], "b": [79.0]}, ", the highest of the table."),
    ],
    ids=["one seed", "reported", "copies", "tied", "equal", "best"],
)
def test_the_finding_says_of_the_highest_that_it_is_better_where_a_test_says_so(scores: dict[str, Sequence[float]], words: str) -> None:
    assert finding(SWEEP, _table(scores), {})[-1].endswith(words)


def test_a_table_of_one_task_says_its_name_once() -> None:
    columns = ("faq:map", "faq:mrr")
    row = ResultRow(method="a", label="a", params={}, seed=0, scores=dict.fromkeys(columns, 1.0), is_fixed=False)
    reported = {
        task: build_table(
            TableRows(title="t", rows=[row], columns=columns, average=False, of_task=task, measure=TASK_KINDS["sts"].main), baseline=None
        ).headings
        for task in ("faq", "")
    }
    assert reported == {"faq": ("map", "mrr"), "": columns}


def test_notes_speak_of_what_stands_in_the_table() -> None:
    untested, tested = _table({"a": [80.0], "b": [81.0]}), _table({"a": [80.0, 80.1, 80.3], "b": [81.0, 81.5, 81.2]})
    assert "Bold: the highest of its column." in untested.notes and not any("[low, high]" in note for note in untested.notes)
    assert (
        any("model confidence set" in note for note in tested.notes)
        and "[low, high]: 95 % interval of each score alone, over other training seeds." in tested.notes
    )


def test_the_seeds_that_would_do_against_a_checkpoint_are_those_of_the_whole_table() -> None:
    """Six seeds are tested by their signs in a table of one comparison, and not among the eight of seven tasks and their average."""
    tasks = [f"t{number}" for number in range(7)]
    for few in (3, 6):
        table = _table({"base": [50.0], "a": np.linspace(70, 71, few).tolist()}, baseline="base", tasks=tasks)
        found = table.comparisons[0].differences["Avg"]
        assert not found.is_significant and found.detectable is None and "would probably have been seen" not in table.verdicts["a"]
        enough = found.enough_by_signs
        assert enough is not None and enough > 6 and f"{enough} on one side would be enough" in table.verdicts["a"]
    reported = _table({"base": [50.0], "a": np.linspace(70, 71, enough).tolist()}, baseline="base", tasks=tasks)
    assert reported.comparisons[0].differences["Avg"].is_significant
    one_fewer = _table({"base": [50.0], "a": np.linspace(70, 71, enough - 1).tolist()}, baseline="base", tasks=tasks)
    assert not one_fewer.comparisons[0].differences["Avg"].is_significant
    alone = _table({"base": [50.0], "a": [70.0, 70.5, 71.0]}, baseline="base")
    assert "6 on one side would be enough" in alone.verdicts["a"]


def test_rows_that_vary_alike_are_not_said_to_have_one_seed() -> None:
    """A setting without effect gives the same scores, seed by seed."""
    said = _table({"a": [80.0, 81.0, 80.5], "b": [80.0, 81.0, 80.5]}, baseline="a").verdicts["b"]
    assert "equal to a to two digits" in said and "vary alike" in said and "one seed" not in said


@pytest.mark.parametrize(
    ("p", "text"),
    [(1e-9, "< 0.001"), (0.0124, "= 0.012"), (0.0497, "= 0.0497"), (0.049996, "= 0.049996"), (0.05, "= 0.050"), (0.0502, "= 0.050")],
)
def test_a_p_is_never_0_and_shows_on_which_side_of_the_level_it_lies(p: float, text: str) -> None:
    assert p_text(p) == text
    found = Difference(difference=1.0, low=0.5, high=1.5, p=p, table_p=p, about="seeds")
    table = replace(
        _table({"a": [80.0], "b": [81.0]}), comparisons=(Comparison(system="b", other="a", relation="baseline", differences={"t": found}),)
    )
    assert cell_text.tests_of(table)[0][4] == text.removeprefix("= ")
    over = replace(table.comparisons[0], differences={"t": replace(found, table_p=0.75)})
    assert cell_text.tests_of(replace(table, comparisons=(over,)))[0][4] == "0.750", "the one over the table"


def test_rows_of_different_seeds_say_nothing_of_other_tasks() -> None:
    """Their seeds' luck moves all tasks at once, and looks like a difference that no task contradicts."""
    rows = [
        ResultRow(method=label, label=label, params={}, seed=seed, scores={"t0": score, "t1": score + gain, "t2": score - gain})
        for label, score, gain in (("a", 80.0, 0.1), ("b", 83.0, 0.3))
        for seed in range(3)
    ]
    paired, unpaired = (
        build_table(TableRows(title="t", rows=some, columns=["t0", "t1", "t2"], measure=TASK_KINDS["sts"].main, average=True), baseline="a")
        .comparisons[0]
        .other_tasks
        for some in (rows, rows[:-1])
    )
    assert paired is not None and unpaired is None
