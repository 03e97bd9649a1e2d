"""Sentences of a report claim what was tested, and no more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sentdist.report.page_head import finding
from sentdist.report.rows import ResultRow
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
    return build_table(rows, title="t", tasks=tasks, baseline=baseline, average=len(tasks) > 1)


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"a": [80.0], "b": [81.0]}, "; b has the highest, 81.00."),
        ({"a": [80.0, 80.1, 80.3], "b": [90.0, 90.2, 90.1]}, "; b has the highest, 90.10, which is told from it."),
        ({"a": [80.0, 80.1, 80.3], "b": [90.0, 90.0, 90.0]}, "; b has the highest, 90.00."),
        ({"a": [80.0, 83.1, 85.3], "b": [84.0, 90.2, 84.1]}, "; b has the highest, 86.10."),
    ],
    ids=["one seed", "told", "copies", "tied"],
)
def test_the_finding_says_of_the_highest_that_it_is_told_where_a_test_says_so(scores: dict[str, Sequence[float]], words: str) -> None:
    assert finding(SWEEP, _table(scores), {}).endswith(words)


def test_notes_speak_of_what_stands_in_the_table() -> None:
    untested, tested = _table({"a": [80.0], "b": [81.0]}), _table({"a": [80.0, 80.1, 80.3], "b": [81.0, 81.5, 81.2]})
    assert "Bold: the highest of its column." in untested.notes and not any("[low, high]" in note for note in untested.notes)
    assert (
        any("model confidence set" in note for note in tested.notes)
        and "[low, high]: 95 % interval over other training seeds." in tested.notes
    )
