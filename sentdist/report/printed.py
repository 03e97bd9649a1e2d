"""Hold the tables that papers printed, match our rows to them and set both side by side."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from sentdist.errors import DataError, counted
from sentdist.plan.shipped import PAPERS
from sentdist.report.comparisons import AVERAGE
from sentdist.report.score_rows import CellFacts, ResultRow, means_over_folds
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, with_all_folds

STS_COLUMNS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")
TRANSFER_COLUMNS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "Avg")
FAQ_COLUMNS = ("Acc@1", "Acc@3", "Acc@5", "MAP")


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One printed row.

    Args:
        scores: × 100, in the order of the table's columns.
        starred: columns printed with a star (p < 0.05).
        printed: column -> misprinted number; `scores` then has what it must have meant.
    """

    label: str
    scores: tuple[float, ...]
    starred: tuple[str, ...] = ()
    printed: Mapping[str, float] = field(default_factory=dict)


# From the SimCSE paper (arXiv 2104.08821, Table 5, BERT-base); RSE and SupMPN print it as the row to beat.
SIMCSE_SUPERVISED = PaperRow(label="SimCSE, supervised", scores=(75.30, 84.67, 80.19, 85.40, 80.82, 84.25, 80.39, 81.57))


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One printed table.

    Args:
        notes: misprints and doubts.
        base: label of the row that gains are measured from; None: there is none.
        recipes: row -> recipe that reproduces it; "" is for all other rows.
        ours: title of our table, if the columns are ambiguous (two benchmarks have a column CR).
        also: our column -> printed column that it also reproduces, if the paper scored its rows that way.
    """

    number: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...] = ()
    base: str | None
    recipes: Mapping[str, str] = field(default_factory=dict)
    paper: str
    ours: str | None = None
    also: Mapping[str, str] = field(default_factory=dict)

    def columns_in(self, columns: Sequence[str]) -> dict[str, str]:
        """Return printed column -> our column; averages are compared only over the same tasks."""
        known = {printed: ours for ours, printed in self.also.items() if ours in columns}
        tasks = set(self.columns if len(self.columns) > 1 else STS_COLUMNS) - {AVERAGE}
        is_same = {known.get(task, task) for task in tasks} == set(columns) - {AVERAGE}
        return {
            printed: ours for printed in self.columns if (ours := known.get(printed, printed)) in columns and (ours != AVERAGE or is_same)
        }

    def also_line(self, columns: Sequence[str]) -> str:
        """Return in words whether our table has the columns of `also`; "" if there are none."""
        if not self.also:
            return ""
        return f"{'with' if set(self.also) <= set(columns) else 'without'} {' and '.join(self.also)}"

    def recipe(self, label: str) -> str | None:
        """Return the recipe that reproduces a row; None if none does."""
        return self.recipes.get(label, self.recipes.get(""))

    def row(self, label: str) -> PaperRow:
        """Return the row of a label; raise DataError with the known labels if there is none."""
        for row in self.rows:
            if row.label == label:
                return row
        raise DataError(
            where=f"{self.paper}, Table {self.number}", found=repr(label), expected=f"one of {[row.label for row in self.rows]}",
            remedy="Match our rows to the labels of the paper.",
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SideBySideRow:
    """Our and the printed scores of one system, and the gain of each over its base row; None: no number."""

    label: str
    paper_label: str
    ours: tuple[float | None, ...]
    paper: tuple[float, ...]
    our_gain: tuple[float | None, ...]
    paper_gain: tuple[float | None, ...]
    what: str = ""  # encoder, batch and seeds of ours, which are not the paper's

    @property
    def whose(self) -> str:
        """Description of our line."""
        return f"ours: {self.what}" if self.what else "ours"


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Our table beside a printed one, over the columns that both have."""

    paper: PaperTable
    columns: tuple[str, ...]
    rows: tuple[SideBySideRow, ...]
    note: str


def side_by_side(table: ResultTable, paper: PaperTable, *, matches: Mapping[str, str], base: str | None) -> SideBySide:
    """Put our lines beside the printed rows, over the shared columns.

    Encoders, data and budgets differ, so gains are comparable and levels are not.

    Args:
        matches: our label -> printed label.
        base: our label of the row that gains are measured from.

    Raises:
        DataError: a table lacks a label, or no column is shared.
    """
    shared = paper.columns_in(table.columns)
    if not shared:
        raise DataError(
            where=f"{paper.paper}, Table {paper.number}", found=f"our columns {list(table.columns)}",
            expected=f"some of {list(paper.columns)}", remedy="Call our columns as the paper does.",
        )  # fmt: skip
    places = [paper.columns.index(column) for column in shared]
    paper_base = [paper.row(paper.base).scores[place] for place in places] if paper.base is not None else [None] * len(places)
    our_columns = list(shared.values())
    our_base = _means(table, base, our_columns) if base is not None else [None] * len(shared)
    rows = []
    for label, paper_label in matches.items():
        ours = _means(table, label, our_columns)
        printed = [paper.row(paper_label).scores[place] for place in places]
        rows.append(
            SideBySideRow(
                label=label,
                paper_label=paper_label,
                ours=tuple(ours),
                paper=tuple(printed),
                what=paper.also_line(table.columns),
                our_gain=_gains(ours, our_base if label != base else []),
                paper_gain=_gains(printed, paper_base if paper_label != paper.base else []),
            )
        )
    note = "Levels depend on encoder, data and budget; what can be compared is the gain of each side over its base, the signed number."
    return SideBySide(paper=paper, columns=tuple(shared), rows=tuple(rows), note=note)


def _means(table: ResultTable, label: str, columns: Sequence[str]) -> list[float | None]:
    line = next((line for line in table.lines if line.label == label), None)
    if line is None:
        raise DataError(
            where=f"table {table.title!r}", found=repr(label), expected=f"one of {[line.label for line in table.lines]}",
            remedy="Use the labels of our table.",
        )  # fmt: skip
    return [summary.mean if (summary := line.cells[column].summary) else None for column in columns]


def _gains(scores: Sequence[float | None], base: Sequence[float | None]) -> tuple[float | None, ...]:
    """Scores minus those of the base; all None without a base."""
    return tuple(
        None if score is None or other is None else score - other for score, other in itertools.zip_longest(scores, base, fillvalue=None)
    )


Facts = TypeVar("Facts")
Matches = Mapping[str, Mapping[str, str]]  # number of a printed table -> our label -> printed row


@dataclass(frozen=True, kw_only=True)
class FurtherTable:
    """A table of ours for a printed one that sweep reports do not have; `row_of`: our label -> printed row."""

    number: str
    table: ResultTable
    row_of: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class PaperTables(Generic[Facts]):
    """The tables of a paper, and how our cells are matched to their rows.

    Args:
        facts: facts on a cell in the paper's terms.
        matches: printed rows of our labels, from their facts.
        compared: printed tables beside one of ours, from ours and the facts of its labels; None: see `with_distinct_rows`.
        not_compared: numbers of tables that a sweep's report does not show beside ours.
        further: tables made from records alone, for example link prediction.
        links: relation -> printed scores of link prediction.
        regulators: number of regulators -> printed score, for the curve in a sweep's report.
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
        """Return the printed rows of all cells of a sweep."""
        return self.matches({label: self.facts(cell) for label, cell in cells.items()})

    def beside(self, table: ResultTable, cells: Mapping[str, CellFacts]) -> Iterator[SideBySide]:
        """Yield the printed tables that have rows of ours, beside ours; each row describes our cell."""
        seeds = {line.label: counted(line.num_seeds, "seed") for line in table.lines}
        what = {label: f"{line}, {seeds[label]}" for label in seeds if (line := cells[label].line)}
        for found in self.beside_facts(table, {label: self.facts(cells[label]) for label in seeds}):
            yield replace(found, rows=tuple(replace(row, what=_joined(what.get(row.label, ""), row.what)) for row in found.rows))

    def beside_facts(self, table: ResultTable, facts: Mapping[str, Facts]) -> Iterator[SideBySide]:
        """Yield the same from the facts of the table's labels."""
        if self.compared is not None:
            return self.compared(table, facts)
        found = {number: rows for number, rows in self.matches(facts).items() if number not in self.not_compared}
        return with_distinct_rows(table, self.tables, found)


def fold_means(sweep: SweepRecord, records: Mapping[str, Record], columns: Mapping[str, str]) -> list[ResultRow]:
    """Return a row per cell and seed with means over folds; `columns`: title -> name of the result. Incomplete cells are left out."""
    found = []
    for (label, seed), trials in with_all_folds(sweep.trials, records).items():  # the mean over some folds is another number
        results = means_over_folds([records[trial.key].results for trial in trials])
        scores = {title: score for title, name in columns.items() if (score := results.get(name)) is not None}
        if len(scores) == len(columns):
            found.append(ResultRow(method=trials[0].method, label=label, params={}, seed=seed or 0, scores=scores, is_fixed=seed is None))
    return found


def with_distinct_rows(table: ResultTable, printed: Mapping[str, PaperTable], matches: Matches) -> Iterator[SideBySide]:
    """Yield the printed tables with at least two matched rows, each by a single row of ours (a grid has many cells per row).

    An average alone is compared only if the paper printed nothing else.
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
    """Return the tables of a paper of `plan/shipped.py`."""
    assert name in PAPERS, name
    found: PaperTables[Any] = importlib.import_module(f"sentdist.report.papers.{name}").TABLES
    return found
