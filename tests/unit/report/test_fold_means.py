"""A row over folds stands beside a printed one only when all of its folds are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.report.brief_table import brief_table
from sentdist.report.paper import fold_means, told_apart
from sentdist.report.printed import PaperRow, PaperTable
from sentdist.report.score_rows import ResultRow
from sentdist.report.tables import build_table


def test_a_row_waits_for_all_of_its_folds() -> None:
    trials = [SimpleNamespace(cell="RCL", method="rcl", seed=0, key=f"fold-{number}") for number in range(3)]
    sweep: Any = SimpleNamespace(trials=trials)
    records: dict[str, Any] = {
        trial.key: SimpleNamespace(results={"faqir": score}) for trial, score in zip(trials, (50.0, 60.0, 70.0), strict=True)
    }
    (row,) = fold_means(sweep, records, {"MAP": "faqir"})
    assert row.label == "RCL" and row.scores == {"MAP": pytest.approx(60.0)}
    del records["fold-1"]
    assert fold_means(sweep, records, {"MAP": "faqir"}) == []


def test_the_average_in_a_terminal_is_of_seeds_that_have_every_task() -> None:
    trials = [SimpleNamespace(cell="RCL", seed=seed, key=f"seed-{seed}") for seed in range(2)]
    sweep: Any = SimpleNamespace(trials=trials)
    records: dict[str, Any] = {
        "seed-0": SimpleNamespace(results={"sts12": 70.0, "sts13": 80.0}),
        "seed-1": SimpleNamespace(results={"sts12": 71.0, "sts13": None}),
    }
    found = brief_table(sweep, records)
    assert found.columns == ("system", "n", "sts12", "sts13", "average of sts")
    assert found.rows == (("RCL", "2", "70.50 ± 0.71", "80.00", "75.00"),)


@pytest.mark.parametrize(("matches", "shown"), [({"a": "A"}, 0), ({"a": "A", "b": "B"}, 1), ({"a": "A", "b": "A"}, 0)])
def test_a_printed_table_stands_beside_ours_where_two_rows_have_one_of_ours_each(matches: dict[str, str], shown: int) -> None:
    rows = [ResultRow(method=label, label=label, params={}, seed=0, scores={"STS12": 70.0}) for label in "ab"]
    table = build_table(rows, title="t", tasks=["STS12"], baseline=None, average=False)
    printed = PaperTable(
        number="1", caption="c", columns=("STS12",), rows=tuple(PaperRow(label=one, scores=(71.0,)) for one in "AB"), base=None, paper="p"
    )
    assert len(list(told_apart(table, {"1": printed}, {"1": matches}))) == shown
