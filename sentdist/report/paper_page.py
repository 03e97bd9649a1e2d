"""Reproduce all result tables of a paper, with our results under each printed row: `sentdist report --paper`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentdist.errors import counted
from sentdist.recipe.shipped import check_paper
from sentdist.report.leaks import sweep_leaks
from sentdist.report.printed import PaperRow, PaperTable, PaperTables, tables_from_results, tables_of
from sentdist.report.sweep_report import Report, result_tables
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import Cell, Line, leaked_text
from sentdist.report.templating import html_page, render
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep, sweep_names

NOTE = (
    "Under each printed row are our results from the store: mean, 95 % interval, and the difference from the printed number with its "
    "interval (the printed number is taken as a constant). Encoder, data and budget differ, so absolute scores say little; what can be "
    "compared is the last column, the gain of each side over its base row in the last score column."
)


@dataclass(frozen=True, kw_only=True)
class OurRow:
    """A line of a sweep's table that reproduces a printed row.

    Args:
        base: line of the same sweep that reproduces the paper's base row.
        columns: printed column -> our column.
        what: what a reader must know to compare the two rows.
    """

    sweep: str
    line: Line
    base: Line | None
    columns: Mapping[str, str]
    what: str = ""


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """A row of a paper's table on the page; a cell of ours has the score, its difference from the printed score, and leaks."""

    kind: str  # paper or ours
    label: str
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ShownTable:
    """A printed table with our rows under each row; `not_run`: recipe -> printed rows without results in the store."""

    printed: PaperTable
    rows: tuple[ShownRow, ...]
    not_run: Mapping[str, Sequence[str]]

    @property
    def header(self) -> tuple[str, ...]:
        return ("", *self.printed.columns, "gain")

    @property
    def text_rows(self) -> list[tuple[str, ...]]:
        """The rows for formats with one line per cell."""
        return [(row.label, *("; ".join(cell) for cell in row.cells)) for row in self.rows]

    @property
    def not_run_line(self) -> str:
        """The number of rows that were not run, as the title of their list."""
        return f"{counted(sum(map(len, self.not_run.values())), 'row')} not run here, with the recipes that run them"


def report_paper(store: ArtifactStore, name: str) -> Report:
    """Build the page of a paper: its tables with our rows, then the rows that were not run, folded away, with their recipes.

    Raises:
        DataError: unknown paper.
    """
    tables = shown_tables(store, name)
    num_ours = sum(row.kind == "ours" for table in tables for row in table.rows)
    num_printed = sum(len(table.printed.rows) for table in tables)
    markdown = render("paper.md.jinja", title=tables_of(name).title, note=NOTE, tables=tables)
    lead = f"{num_ours} rows of ours under {num_printed} printed rows. {NOTE}"
    return Report(name=f"paper-{name}", lead=lead, markdown=markdown, html=html_page(markdown), files={})


def shown_tables(store: ArtifactStore, name: str) -> tuple[ShownTable, ...]:
    """Return the tables of a paper with our rows; raise DataError for an unknown paper."""
    check_paper(name)
    printed = tables_of(name)
    ours = _our_rows(store, name, printed)
    return tuple(_shown(table, ours.get(number, {})) for number, table in printed.tables.items())


def _our_rows(store: ArtifactStore, paper: str, printed: PaperTables) -> dict[str, dict[str, list[OurRow]]]:
    """Table -> printed row -> our rows, from every sweep whose recipe names the paper."""
    by_row: dict[str, dict[str, list[OurRow]]] = {}
    for name in sweep_names(store):
        sweep = load_sweep(store, name)
        if sweep.paper != paper:
            continue
        records = sweep.records(store)
        scored = sweep_rows(sweep, store, records)
        tables = list(result_tables(sweep, scored, sweep_leaks(sweep, store, records)))
        matches = printed.our_rows(scored.facts)
        for number, of_paper in printed.tables.items():
            rows_of = by_row.setdefault(number, {})
            if number in matches:
                ours = [(table, matches[number]) for table in tables if of_paper.title_of_ours in (None, table.title)]
            else:
                ours = list(tables_from_results(of_paper, sweep, records, scored.facts))
            for table, found in ours:
                columns = of_paper.columns_in(table.columns)
                lines = {line.label: line for line in table.lines if line.label in found} if columns else {}
                base = lines.get(of_paper.base_label({label: found[label] for label in lines}) or "")
                for label, line in lines.items():
                    what = ", ".join(filter(None, (scored.facts[label].line, of_paper.also_line(table.columns))))
                    our_row = OurRow(sweep=name, line=line, base=None if line is base else base, columns=columns, what=what)
                    rows_of.setdefault(found[label], []).append(our_row)
    return by_row


def _shown(table: PaperTable, ours: Mapping[str, Sequence[OurRow]]) -> ShownTable:
    return ShownTable(printed=table, rows=tuple(_rows(table, ours)), not_run=_not_run(table, ours))


def _rows(table: PaperTable, ours: Mapping[str, Sequence[OurRow]]) -> Iterator[ShownRow]:
    base = None if table.base is None else table.by_label[table.base]
    for row in table.rows:
        gain = "" if base is None or row is base else f"{row.scores[-1] - base.scores[-1]:+.2f}"
        scores = (_printed(row, table, place) for place in range(len(table.columns)))
        yield ShownRow(kind="paper", label=row.label, cells=(*((score,) for score in scores), (gain,)))
        for our_row in ours.get(row.label, ()):
            yield _our_row(table, row, our_row)


def _not_run(table: PaperTable, ours: Mapping[str, Sequence[OurRow]]) -> dict[str, list[str]]:
    """Recipe -> printed rows that it reproduces and that have no results in the store."""
    by_recipe: dict[str, list[str]] = {}
    for row in table.rows:
        if row.recipe and not ours.get(row.label):
            by_recipe.setdefault(row.recipe, []).append(row.label)
    return by_recipe


def _printed(row: PaperRow, table: PaperTable, place: int) -> str:
    column, score = table.columns[place], row.scores[place]
    text = f"{score:.2f}" + ("*" if column in row.starred else "")
    return f"{text} (misprinted {row.printed[column]:.2f})" if column in row.printed else text


def _our_row(table: PaperTable, row: PaperRow, own: OurRow) -> ShownRow:
    seeds = "fixed" if own.line.is_fixed else counted(own.line.num_seeds, "seed")
    what = (", exploratory" if own.line.exploratory else "") + (f"; {own.what}" if own.what else "")
    of_ours = (own.columns.get(column, "") for column in table.columns)
    cells = tuple(_our_cell(own.line.cells.get(column), score) for column, score in zip(of_ours, row.scores, strict=True))
    last = own.columns.get(table.columns[-1], "")
    mine, theirs = (None if line is None or last not in line.cells else line.cells[last].summary for line in (own.line, own.base))
    gain = "" if mine is None or theirs is None else f"{mine.mean - theirs.mean:+.2f}"
    return ShownRow(kind="ours", label=f"↳ {own.line.label} ({own.sweep}, {seeds}{what})", cells=(*cells, (gain,)))


def _our_cell(cell: Cell | None, printed: float) -> tuple[str, ...]:
    """Mean and difference, each with its interval, and how much of the test set leaked."""
    if cell is None or cell.summary is None:
        return ("–",)
    mean, interval = cell.summary.mean, cell.interval
    score, difference = f"{mean:.2f}", f"{mean - printed:+.2f}"
    if interval is not None:
        score += f" [{interval.low:.2f}, {interval.high:.2f}]"
        difference += f" [{interval.low - printed:+.2f}, {interval.high - printed:+.2f}]"
    return (score, difference, leaked_text(cell)) if cell.leaked else (score, difference)
