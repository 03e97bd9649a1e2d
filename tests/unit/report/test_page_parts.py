"""The parts of a page one by one: its CSV, its head, a paper's rows with ours below, whose work it rests on."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

import pytest

from sentdist.errors import DataError
from sentdist.recipe.stage import Json
from sentdist.report import citations, paper_page
from sentdist.report.comparisons import AVERAGE
from sentdist.report.page_head import finding, spoken_rows
from sentdist.report.printed import PaperRow, PaperTable
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table, comparisons_to_csv
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.tasks.kinds import TASK_KINDS


def _table(scores: dict[str, Sequence[float]], *, baseline: str | None = None, tasks: Sequence[str] = ("t",), **given: Any) -> ResultTable:
    rows = [
        ResultRow(method=label.split()[0], label=label, params={}, seed=seed, scores=dict.fromkeys(tasks, score), is_fixed=label == "base")
        for label, values in scores.items()
        for seed, score in enumerate(values)
    ]
    return build_table(
        TableRows(title="t", rows=rows, columns=tasks, average=len(tasks) > 1, measure=TASK_KINDS["sts"].main), baseline=baseline, **given
    )


SEEDS = {"base": [70.0], "rcl": [80.0, 80.4, 81.0], "eq1": [79.0, 79.5, 79.2]}


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_difference_of_a_csv_has_its_own_p_and_that_over_the_table() -> None:
    table = _table(SEEDS, baseline="eq1", tasks=["t0", "t1", "t2"])
    rows = _rows(comparisons_to_csv(table))
    found = {(row["system"], row["against"], row["relation"], row["task"], row["speaks of"] == "other tasks"): row for row in rows}
    assert len(found) == len(rows)
    for comparison in table.comparisons:
        names = (comparison.system, comparison.other, comparison.relation)
        for task, one in comparison.differences.items():
            row = found[*names, task, False]
            numbers = (one.difference, one.low, one.high, one.p, one.table_p, one.detectable)
            given = [row[name] for name in ("difference", "low", "high", "p alone", "p over table", "detectable")]
            assert given == ["" if value is None else f"{value:.6g}" for value in numbers]
            assert (row["speaks of"], row["reason"]) == (one.about, one.reason)
        if (other := comparison.other_tasks) is not None:
            row = found[*names, AVERAGE, True]
            assert [row[name] for name in ("low", "high", "p alone")] == [
                "" if one is None else f"{one:.6g}" for one in (other.low, other.high, other.p)
            ]
    assert any(one.p != one.table_p for comparison in table.comparisons for one in comparison.differences.values())


def _sweep(headline: str | None, *methods: str, trials: tuple[TrialRecord, ...] = ()) -> SweepRecord:
    recipe: dict[str, Json] = {"headline": headline, "methods": {name: {"objective": {} if name != "base" else None} for name in methods}}
    return SweepRecord(name="s", about="", recipe=recipe, baseline=None, paper=None, places={}, trials=trials)


def test_a_finding_speaks_of_the_headline_method_else_of_the_first_trained_one_beside_the_baseline() -> None:
    scores = {"base": [70.0], "eq1": [79.0, 79.5], "other": [78.0, 78.5], "rcl (a=1)": [80.0, 80.4], "rcl (a=2)": [82.0, 82.4]}
    table = _table(scores, baseline="eq1")
    for headline, spoken in (("rcl", "rcl (a=1)"), ("other", "other"), (None, "other"), ("gone", "other"), ("base", "base")):
        sweep = _sweep(headline, "base", "eq1", "other", "rcl")
        said = finding(sweep, table, {})
        assert said[0] == table.verdict(spoken) and len(said) == 4, "a sentence a method, and for how many comparisons it is corrected"
        assert {"base", "other", "rcl (a=1)"} == {line.label for line in spoken_rows(sweep, table, {})[:-1]}
        doubted = _table(scores, baseline="eq1", exploratory={spoken: "dev has not spoken"})
        assert finding(sweep, doubted, {})[0].endswith(" Exploratory: dev has not spoken.")


PRINTED = PaperTable(
    number="9", caption="c", base="Eq. 1", columns=("STS12", "STS13", "Avg"),
    rows=(PaperRow(label="Eq. 1", scores=(70.0, 72.0, 71.0), recipe="all.yaml", ours={"is_as_it_is": True}),
          PaperRow(label="RCL", scores=(74.0, 71.0, 72.5), starred=("STS12",), printed={"STS13": 11.0}, recipe="rcl.yaml",
                   ours={"is_as_it_is": False}),
          PaperRow(label="other", scores=(1.0, 2.0, 1.5))),
)  # fmt: skip


def test_a_printed_row_has_its_gain_in_the_last_column_and_its_misprints_beside_what_was_meant() -> None:
    rows = list(paper_page._rows(PRINTED, {}))
    assert rows[1].cells == (("74.00*",), ("71.00 (misprinted 11.00)",), ("72.50",), ("+1.50",))
    assert [row.cells[-1] for row in rows] == [("",), ("+1.50",), ("-69.50",)]
    assert paper_page._not_run(PRINTED, {}) == {"all.yaml": ["Eq. 1"], "rcl.yaml": ["RCL"]}
    there: Any = ["something of ours"]
    assert paper_page._not_run(PRINTED, {"RCL": there}) == {"all.yaml": ["Eq. 1"]}


def test_citations_are_complete_and_refuse_unknown_keys() -> None:
    everything = citations.cite(citations.CITATIONS)
    bibtex = citations.to_bibtex(everything)
    assert bibtex.count("@") == len(everything) and bibtex.count("{") == bibtex.count("}")
    for citation in everything:
        assert citation.url.startswith("https://") and 1940 < citation.year < 2030 and citation.authors and citation.role
        assert re.fullmatch(r"[a-z0-9_]+", citation.key)
    assert [one.key for one in citations.cite(["max_t", "rcl", "max_t"])] == ["rcl", "max_t"]
    with pytest.raises(DataError, match="typo"):
        citations.cite(["typo"])
