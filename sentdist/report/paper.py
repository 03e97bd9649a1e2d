"""How a file of `report/papers/` says which of our cells stands for which printed row."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from sentdist.errors import counted
from sentdist.plan.papers import PAPERS
from sentdist.report.cell_facts import CellFacts
from sentdist.report.printed import PaperTable
from sentdist.report.score_rows import ResultRow
from sentdist.report.seed_results import means_over_folds
from sentdist.report.side_by_side import SideBySide, side_by_side
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, with_all_folds

Facts = TypeVar("Facts")
Matches = Mapping[str, Mapping[str, str]]  # number of a printed table -> our label -> the printed row that stands for the same thing


@dataclass(frozen=True, kw_only=True)
class FurtherTable:
    """A table of ours that no sweep's report has, for a printed one. row_of: our label -> printed row."""

    number: str
    table: ResultTable
    row_of: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class PaperTables(Generic[Facts]):
    """A paper's tables and how our cells find their rows.

    facts: what is known of a cell, in the paper's terms; None: nothing.
    matches: the printed rows of labels, from the facts of these.
    compared: the printed tables that are set beside one of ours, from ours and its labels' rows; None: see `with_distinct_rows`.
    not_compared: numbers of the tables that are not set beside ours in a sweep's report.
    further: tables made of records alone, such as those of link prediction.
    links: printed scores of link prediction, by relation, for the table of a sweep's report.
    regulators: number of regulators -> printed score, for the curve of a sweep's report.
    """

    title: str
    tables: Mapping[str, PaperTable]
    facts: Callable[[CellFacts], Facts]
    matches: Callable[[Mapping[str, Facts]], Matches]
    compared: Callable[[ResultTable, Mapping[str, Facts]], Iterator[SideBySide]] | None = None
    not_compared: tuple[str, ...] = ()
    further: Callable[[SweepRecord, Mapping[str, Record], Mapping[str, CellFacts]], Iterator[FurtherTable]] | None = None
    links: Mapping[str, Sequence[float]] = field(default_factory=dict)
    regulators: Mapping[int, float] | None = None

    def our_rows(self, cells: Mapping[str, CellFacts]) -> Matches:
        """The printed rows of all cells of a sweep."""
        return self.matches({label: self.facts(cell) for label, cell in cells.items()})

    def beside(self, table: ResultTable, cells: Mapping[str, CellFacts]) -> Iterator[SideBySide]:
        """The paper's tables that have rows of ours, beside ours; each row says what ours is."""
        seeds = {line.label: counted(line.num_seeds, "seed") for line in table.lines}
        what = {label: f"{line}, {seeds[label]}" for label in seeds if (line := cells[label].line)}
        for found in self.beside_facts(table, {label: self.facts(cells[label]) for label in seeds}):
            yield replace(found, rows=tuple(replace(row, what=_joined(what.get(row.label, ""), row.what)) for row in found.rows))

    def beside_facts(self, table: ResultTable, facts: Mapping[str, Facts]) -> Iterator[SideBySide]:
        """The same, from the facts of the table's labels."""
        if self.compared is not None:
            return self.compared(table, facts)
        found = {number: rows for number, rows in self.matches(facts).items() if number not in self.not_compared}
        return with_distinct_rows(table, self.tables, found)


def fold_means(sweep: SweepRecord, records: Mapping[str, Record], columns: Mapping[str, str]) -> list[ResultRow]:
    """A row a cell and seed, from records alone. columns: title -> name of the result, of which a row has the mean over folds; cells
    without them, or with a fold that is not there yet, are left out."""
    found = []
    for (label, seed), trials in with_all_folds(sweep.trials, records).items():  # a mean over some folds is not that of the printed row
        results = means_over_folds([records[trial.key].results for trial in trials])
        scores = {title: score for title, name in columns.items() if (score := results.get(name)) is not None}
        if len(scores) == len(columns):
            found.append(ResultRow(method=trials[0].method, label=label, params={}, seed=seed or 0, scores=scores, is_fixed=seed is None))
    return found


def with_distinct_rows(table: ResultTable, printed: Mapping[str, PaperTable], matches: Matches) -> Iterator[SideBySide]:
    """The printed tables of which two rows or more have just one of ours each: a grid has many cells for one row.

    An average alone is compared where the paper printed nothing else.
    """
    for number, rows in matches.items():
        paper = printed[number]
        are_distinct = len(set(rows.values())) == len(rows) > 1
        shared = set(paper.columns_in(table.columns))
        if are_distinct and (shared - {"Avg"} or (shared and paper.columns == ("Avg",))):
            base = next((label for label, row in rows.items() if row == paper.base), None)
            yield side_by_side(table, paper, matches=rows, base=base)


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def tables_of(name: str) -> PaperTables[Any]:
    """The tables of a paper of `plan/papers.py`."""
    assert name in PAPERS, name
    found: PaperTables[Any] = importlib.import_module(f"sentdist.report.papers.{name}").TABLES
    return found
