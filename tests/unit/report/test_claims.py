"""Sentences of a report claim what was tested, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sentdist.evaluation.significance import Difference
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report import cell_text
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


FINDINGS: list[tuple[dict[str, Sequence[float]], str]] = [
    ({"a": [80.0], "b": [81.0]}, "; b has the highest, 81.00."),
    ({"a": [80.0, 80.1, 80.3], "b": [90.0, 90.2, 90.1]}, "; b has the highest, 90.10, which is significantly better."),
    ({"a": [80.0, 80.1, 80.3], "b": [90.0, 90.0, 90.0]}, "; b has the highest, 90.00."),
    ({"a": [80.0, 83.1, 85.3], "b": [84.0, 90.2, 84.1]}, "; b has the highest, 86.10."),
    ({"a": [100.0], "b": [100.0], "c": [99.0]}, ", the highest of the table; 1 other row has it, too."),
    ({"a": [80.0], "b": [79.0]}, ", the highest of the table."),
]


def test_the_finding_says_of_the_highest_that_it_is_better_where_a_test_says_so() -> None:
    for scores, words in FINDINGS:
        assert finding(SWEEP, _table(scores), {})[-1].endswith(words)


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


def test_a_p_is_never_0_and_shows_on_which_side_of_the_level_it_lies() -> None:
    shown = {1e-9: "< 0.001", 0.0124: "= 0.012", 0.0497: "= 0.0497", 0.049996: "= 0.049996", 0.05: "= 0.050", 0.0502: "= 0.050"}
    assert {p: p_text(p) for p in shown} == shown
    p = 0.0124
    found = Difference(difference=1.0, low=0.5, high=1.5, p=p, table_p=p, about="seeds")
    table = replace(
        _table({"a": [80.0], "b": [81.0]}), comparisons=(Comparison(system="b", other="a", relation="baseline", differences={"t": found}),)
    )
    assert cell_text.tests_of(table)[0][4] == "0.012"
    over = replace(table.comparisons[0], differences={"t": replace(found, table_p=0.75)})
    assert cell_text.tests_of(replace(table, comparisons=(over,)))[0][4] == "0.750", "the one over the table"
