"""Read the tables that papers printed (`papers/*.yaml`), match our cells to their rows, and set both side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sentdist.errors import counted
from sentdist.recipe.shipped import PAPERS
from sentdist.recipe.wording import parsed_yaml
from sentdist.report.cell_values import cell_values, meets
from sentdist.report.comparisons import AVERAGE
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows, means_over_folds
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, with_all_folds
from sentdist.tasks.kinds import TASK_KINDS

STS_COLUMNS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", AVERAGE)
FOLDER = Path(__file__).parent / "papers"
NOTE = "Levels depend on encoder, data and budget; what can be compared is the gain of each side over its base, the signed number."


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One printed row.

    Args:
        scores: × 100, in the order of the table's columns.
        starred: columns printed with a star (p < 0.05).
        printed: column -> misprinted number; `scores` then has what it must have meant.
        recipe: the recipe that reproduces it; None: none does.
        ours: the values of a cell of ours that reproduces it (`cell_values`); None: no cell does.
        results: name of our scores without the measure, of a table with `kind`.
    """

    label: str
    scores: tuple[float, ...]
    starred: Sequence[str] = ()
    printed: Mapping[str, float] = field(default_factory=dict)
    recipe: str | None = None
    ours: Mapping[str, Any] | None = None
    results: str = ""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One printed table.

    Args:
        notes: misprints and doubts.
        base: label of the row that gains are measured from; None: there is none.
        title_of_ours: title of our table, if the columns are ambiguous (two benchmarks have a column CR).
        also: our column -> printed column that it also reproduces, if the paper scored its rows that way.
        kind: kind of the task whose results reproduce it, if our tables do not have its columns.
        is_compared: whether the report of a sweep shows it beside ours.
    """

    number: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    notes: Sequence[str] = ()
    base: str | None = None
    title_of_ours: str | None = None
    also: Mapping[str, str] = field(default_factory=dict)
    kind: str | None = None
    is_compared: bool = True

    @property
    def by_label(self) -> dict[str, PaperRow]:
        return {row.label: row for row in self.rows}

    def columns_in(self, columns: Sequence[str]) -> dict[str, str]:
        """Return printed column -> our column; averages are compared only over the same tasks."""
        known = {printed: ours for ours, printed in self.also.items() if ours in columns}
        tasks = set(self.columns if len(self.columns) > 1 else STS_COLUMNS) - {AVERAGE}
        is_same = {known.get(task, task) for task in tasks} == set(columns) - {AVERAGE}
        found = {printed: known.get(printed, printed) for printed in self.columns}
        return {printed: ours for printed, ours in found.items() if ours in columns and (ours != AVERAGE or is_same)}

    def also_line(self, columns: Sequence[str]) -> str:
        """Return in words whether our table has the columns of `also`; "" if there are none."""
        if not self.also:
            return ""
        return f"{'with' if set(self.also) <= set(columns) else 'without'} {' and '.join(self.also)}"

    def matches(self, cells: Mapping[str, CellFacts]) -> dict[str, str]:
        """Return our label -> printed row that it reproduces."""
        found = {}
        for label, cell in cells.items():
            values = cell_values(cell)
            row = next((row.label for row in self.rows if row.ours is not None and meets(values, row.ours)), None)
            if row is not None:
                found[label] = row
        return found

    def base_label(self, matches: Mapping[str, str]) -> str | None:
        """Return our label of the row that gains are measured from."""
        return next((label for label, row in matches.items() if row == self.base), None)


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
    note: str = NOTE


def side_by_side(table: ResultTable, paper: PaperTable, cells: Mapping[str, CellFacts]) -> SideBySide | None:
    """Put our lines beside the printed rows that they reproduce, over the shared columns.

    Encoders, data and budgets differ, so gains are comparable and levels are not.

    Returns:
        None if fewer than two printed rows have a line, or only an average is shared and the paper printed more.
    """
    shared = paper.columns_in(table.columns)
    lines = {line.label: line for line in table.lines}
    matches = paper.matches({label: cells[label] for label in lines})
    if len(set(matches.values())) < 2 or not (set(shared) - {AVERAGE} or (shared and paper.columns == (AVERAGE,))):
        return None

    def means(label: str) -> tuple[float | None, ...]:
        return tuple(summary.mean if (summary := lines[label].cells[column].summary) else None for column in shared.values())

    def printed(label: str) -> tuple[float, ...]:
        return tuple(paper.by_label[label].scores[paper.columns.index(column)] for column in shared)

    base = paper.base_label(matches)
    rows = tuple(
        SideBySideRow(
            label=label,
            paper_label=row,
            ours=means(label),
            paper=printed(row),
            our_gain=_gains(means(label), None if base in (None, label) else means(base)),
            paper_gain=_gains(printed(row), None if paper.base in (None, row) else printed(paper.base)),
            what=", ".join(filter(None, (cells[label].line, counted(lines[label].num_seeds, "seed"), paper.also_line(table.columns)))),
        )
        for label, row in matches.items()
    )
    return SideBySide(paper=paper, columns=tuple(shared), rows=rows)


def _gains(scores: Sequence[float | None], base: Sequence[float | None] | None) -> tuple[float | None, ...]:
    """Scores minus those of the base; all None without a base."""
    pairs = zip(scores, base or [None] * len(scores), strict=True)
    return tuple(None if score is None or other is None else score - other for score, other in pairs)


@dataclass(frozen=True, kw_only=True)
class PaperTables:
    """The tables of a paper.

    Args:
        regulators: number of regulators -> printed score, for the curve in a sweep's report.
    """

    title: str
    tables: Mapping[str, PaperTable]
    regulators: Mapping[int, float] | None = None

    @property
    def links(self) -> dict[str, tuple[float, ...]]:
        """Relation -> printed scores of link prediction."""
        rows = (row for table in self.tables.values() if table.kind == "links" for row in table.rows)
        return {row.results.removeprefix("links."): row.scores for row in rows}

    def our_rows(self, cells: Mapping[str, CellFacts]) -> dict[str, dict[str, str]]:
        """Return table -> our label -> printed row, of the tables whose columns our tables have."""
        return {number: table.matches(cells) for number, table in self.tables.items() if table.kind is None}

    def beside(self, table: ResultTable, cells: Mapping[str, CellFacts]) -> Iterator[SideBySide]:
        """Yield the printed tables that have rows of ours, beside ours; each row describes our cell."""
        for paper in self.tables.values():
            if paper.kind is None and paper.is_compared and (found := side_by_side(table, paper, cells)) is not None:
                yield found


def tables_from_results(
    paper: PaperTable, sweep: SweepRecord, records: Mapping[str, Record], cells: Mapping[str, CellFacts]
) -> Iterator[tuple[ResultTable, dict[str, str]]]:
    """Yield our tables of a printed one with `kind` (retrieval of questions, links), and our label -> printed row; means over folds."""
    if paper.kind is None:
        return
    for results in dict.fromkeys(row.results for row in paper.rows):
        matches = replace(paper, rows=tuple(row for row in paper.rows if row.results == results)).matches(cells)
        columns = {title: f"{results}.{title.lower()}" for title in paper.columns}
        rows = [row for row in fold_means(sweep, records, columns) if row.label in matches]
        if rows:
            measure = TASK_KINDS[paper.kind].main
            given = TableRows(title=paper.caption, rows=rows, columns=paper.columns, measure=measure, average=False, is_compared=False)
            yield build_table(given, baseline=None), matches


def fold_means(sweep: SweepRecord, records: Mapping[str, Record], columns: Mapping[str, str]) -> list[ResultRow]:
    """Return a row per cell and seed with means over folds; `columns`: title -> name of the result. Incomplete cells are left out."""
    found = []
    for (label, seed), trials in with_all_folds(sweep.trials, records).items():  # the mean over some folds is another number
        results = means_over_folds([records[trial.key].results for trial in trials])
        scores = {title: score for title, name in columns.items() if (score := results.get(name)) is not None}
        if len(scores) == len(columns):
            found.append(ResultRow(method=trials[0].method, label=label, params={}, seed=seed or 0, scores=scores, is_fixed=seed is None))
    return found


@cache
def tables_of(name: str) -> PaperTables:
    """Return the tables of a paper of `plan/shipped.py`."""
    assert name in PAPERS, name
    paper = _read(FOLDER / "papers.yaml")[name]
    tables = {number: _table(_read(FOLDER / name / f"{file}.yaml"), number) for number, file in paper["tables"].items()}
    regulators = paper.get("regulators")
    curve = None if regulators is None else {int(row.label): row.scores[0] for row in tables[regulators].rows}
    return PaperTables(title=paper["title"], tables=tables, regulators=curve)


def _table(given: dict[str, Any], number: str) -> PaperTable:
    """Make the table that a file describes; a key that no field reads is a TypeError."""
    scores, ours, shared = given.pop("rows"), given.pop("ours"), given.pop("all_of_ours", {})
    starred, misprinted = given.pop("starred", {}), given.pop("misprinted", {})
    recipe, recipes, results = given.pop("recipe"), given.pop("recipes", {}), given.pop("results", "")
    rows = tuple(
        PaperRow(
            label=label,
            scores=tuple(row),
            starred=starred.get(label, ()),
            printed=misprinted.get(label, {}),
            recipe=recipes.get(label, recipe) if label in ours else None,
            ours=_conditions(ours, label, shared) if label in ours else None,
            results=results if isinstance(results, str) else results[label],
        )
        for label, row in scores.items()
    )
    return PaperTable(**{"number": number, **given, "columns": tuple(given["columns"]), "rows": rows})


def _conditions(ours: Mapping[str, Any], label: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a cell must have for a row; `like` names a row whose conditions it has, too."""
    own = dict(ours[label])
    return {**shared, **ours.get(own.pop("like", None), {}), **own}


def _read(path: Path) -> Any:
    return parsed_yaml(path.read_text(encoding="utf-8"), where=path.name, expected="YAML", remedy="Correct the file.")
