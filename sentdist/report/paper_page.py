"""All result tables of one paper in its own shape, with what the store has of each row beneath it: `sentdist report --paper`."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentdist.errors import DataError, counted
from sentdist.plan.papers import PAPERS
from sentdist.plan.wording import near
from sentdist.report.columns import AVERAGE
from sentdist.report.html import Section, page, paragraphs
from sentdist.report.leaks import sweep_leaks
from sentdist.report.paper import PaperTables, tables_of
from sentdist.report.printed import STS_COLUMNS, PaperRow, PaperTable
from sentdist.report.render import leaked_text
from sentdist.report.sweep_report import Report, result_tables
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import Cell, Line, ResultTable
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep, sweep_names
from sentdist.table_text import markdown_table, markdown_text

NOTE = (
    "Under a printed row stands what the store has of it: mean, 95 % interval, and the difference from the printed number with its interval, "
    "that number taken as a constant. Encoder, data and budget differ, so levels say little; the last column is what can be compared, the gain "
    "over each side's own base in the last of its columns."
)


@dataclass(frozen=True, kw_only=True)
class OurRow:
    """A line of a sweep's table that stands for a printed row; base: the line of the same sweep that stands for the paper's base."""

    sweep: str
    line: Line
    base: Line | None


def report_paper(store: ArtifactStore, name: str) -> Report:
    """The tables of a paper, ours under theirs; what was not run stands below, folded, with its recipe.

    Raises:
        DataError: no such paper.
    """
    if name not in PAPERS:
        closest = near(name, PAPERS)
        remedy = f"Did you mean {closest}?" if closest else "Correct the name."
        raise DataError(where="paper", found=repr(name), expected=f"one of {', '.join(PAPERS)}", remedy=remedy)
    printed = tables_of(name)
    ours = _our_rows(store, name, printed)
    sections, markdown = [], [f"# {printed.title}", NOTE]
    for number, table in printed.tables.items():
        rows, not_run = list(_rows(table, ours.get(number, {}))), _not_run(table, ours.get(number, {}))
        header = ["", *table.columns, "gain"]
        markdown += [
            f"## Table {table.number}: {table.caption}",
            _markdown(header, rows),
            *_folded(not_run),
            *(f"<sub>{markdown_text(note)}</sub>" for note in table.notes),
        ]
        sections.append(Section(title=f"Table {table.number}", body=_figure(table, header, rows, not_run)))
    num_ours = sum(len(found) for by_row in ours.values() for found in by_row.values())
    lead = f"{num_ours} rows of ours under {sum(len(table.rows) for table in printed.tables.values())} printed ones. {NOTE}"
    text = page(title=printed.title, lead=lead, sections=sections, facts={"store": store.shown})
    return Report(name=f"paper-{name}", markdown="\n\n".join(markdown) + "\n", html=text, files={})


def _our_rows(store: ArtifactStore, paper: str, printed: PaperTables[Any]) -> dict[str, dict[str, list[OurRow]]]:
    """Number of a table -> printed row -> ours, from every sweep whose recipe names the paper."""
    found: dict[str, dict[str, list[OurRow]]] = {}
    for name in sweep_names(store):
        sweep = load_sweep(store, name)
        if sweep.paper != paper:
            continue
        records = sweep.records(store)
        rows = sweep_rows(sweep, store, records)
        leaks = sweep_leaks(sweep, store, records)
        tables = list(result_tables(sweep, rows, None, leaks))
        for further in printed.further(sweep, records, rows.facts) if printed.further is not None else ():
            of_base = printed.tables[further.number].base
            base = next((line for line in further.table.lines if further.row_of.get(line.label) == of_base), None)
            for line in further.table.lines:
                own = OurRow(sweep=name, line=line, base=None if line is base else base)
                found.setdefault(further.number, {}).setdefault(further.row_of[line.label], []).append(own)
        for number, matches in printed.our_rows(rows.facts).items():
            of_paper = printed.tables[number]
            for table in tables:
                if not _shared(table, of_paper) or of_paper.ours not in (None, table.title):
                    continue
                base = next((line for line in table.lines if matches.get(line.label) == of_paper.base), None)
                for line in table.lines:
                    if line.label in matches:
                        own = OurRow(sweep=name, line=line, base=None if line is base else base)
                        found.setdefault(number, {}).setdefault(matches[line.label], []).append(own)
    return found


def _shared(table: ResultTable, printed: PaperTable) -> list[str]:
    """The columns that both have; an average counts only over the same tasks."""
    tasks = set(printed.columns if len(printed.columns) > 1 else STS_COLUMNS) - {AVERAGE}
    columns = set(table.columns) & set(printed.columns)
    return [column for column in printed.columns if column in columns and (column != AVERAGE or tasks <= set(table.columns))]


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """A row of a rendered table. kind: paper or ours."""

    kind: str
    label: str
    cells: tuple[str, ...]


def _rows(table: PaperTable, ours: Mapping[str, Sequence[OurRow]]) -> Iterator[_Shown]:
    base = None if table.base is None else table.row(table.base)
    for row in table.rows:
        gain = "" if base is None or row is base else f"{row.scores[-1] - base.scores[-1]:+.2f}"
        yield _Shown(kind="paper", label=row.label, cells=(*(_printed(row, table, place) for place in range(len(table.columns))), gain))
        for own in ours.get(row.label, ()):
            yield _our_row(table, row, own)


def _not_run(table: PaperTable, ours: Mapping[str, Sequence[OurRow]]) -> dict[str, list[str]]:
    """Recipe -> printed rows that it stands for and that the store has nothing of."""
    found: dict[str, list[str]] = {}
    for row in table.rows:
        recipe = table.recipes.get(row.label, table.recipes.get(""))
        if recipe and not ours.get(row.label):
            found.setdefault(recipe, []).append(row.label)
    return found


def _printed(row: PaperRow, table: PaperTable, place: int) -> str:
    column, score = table.columns[place], row.scores[place]
    text = f"{score:.2f}" + ("*" if column in row.starred else "")
    return f"{text} (misprinted {row.printed[column]:.2f})" if column in row.printed else text


def _our_row(table: PaperTable, row: PaperRow, own: OurRow) -> _Shown:
    seeds = "fixed" if own.line.is_fixed else f"{own.line.num_seeds} seed{'' if own.line.num_seeds == 1 else 's'}"
    doubt = ", exploratory" if own.line.exploratory else ""
    cells = tuple(_our_cell(own.line.cells.get(column), score) for column, score in zip(table.columns, row.scores, strict=True))
    last = table.columns[-1]
    mine, theirs = (None if line is None or last not in line.cells else line.cells[last].summary for line in (own.line, own.base))
    gain = "" if mine is None or theirs is None else f"{mine.mean - theirs.mean:+.2f}"
    return _Shown(kind="ours", label=f"↳ {own.line.label} ({own.sweep}, {seeds}{doubt})", cells=(*cells, gain))


def _our_cell(cell: Cell | None, printed: float) -> str:
    """Mean, interval, difference and its interval; how much of the test leaked."""
    if cell is None or cell.summary is None:
        return "–"
    mean, interval = cell.summary.mean, cell.interval
    text = f"{mean:.2f}"
    if interval is not None:
        text += f" [{interval.low:.2f}, {interval.high:.2f}]"
    text += f"; {mean - printed:+.2f}"
    if interval is not None:
        text += f" [{interval.low - printed:+.2f}, {interval.high - printed:+.2f}]"
    return f"{text}; {leaked_text(cell)}" if cell.leaked else text


def _markdown(header: Sequence[str], rows: Sequence[_Shown]) -> str:
    return markdown_table(list(map(markdown_text, header)), [list(map(markdown_text, (row.label, *row.cells))) for row in rows])


def _folded(not_run: Mapping[str, Sequence[str]]) -> list[str]:
    """A block of Markdown that GitHub folds; nothing where all rows were run."""
    if not not_run:
        return []
    lines = "\n".join(f"- not run: {markdown_text(recipe)} ({markdown_text(', '.join(labels))})" for recipe, labels in not_run.items())
    return [f"<details><summary>{_told(not_run)}</summary>\n\n{lines}\n\n</details>"]


def _told(not_run: Mapping[str, Sequence[str]]) -> str:
    return f"{counted(sum(map(len, not_run.values())), 'row')} not run here, with the recipes that run them"


def _figure(table: PaperTable, header: Sequence[str], rows: Sequence[_Shown], not_run: Mapping[str, Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
    body = "".join(
        f'<tr class="{row.kind}"><th scope="row">{html.escape(row.label)}</th>'
        + "".join(f"<td>{html.escape(cell).replace('; ', '<br>').replace(' [', '<br>[')}</td>" for cell in row.cells)
        + "</tr>"
        for row in rows
    )
    items = "".join(f"<li>{html.escape(recipe)}: {html.escape(', '.join(labels))}</li>" for recipe, labels in not_run.items())
    folded = f'<details class="missing"><summary>{_told(not_run)}</summary><ul>{items}</ul></details>' if not_run else ""
    return (
        f'<figure class="results printed"><figcaption>{html.escape(table.caption)}</figcaption><div class="scroll"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div></figure>{folded}" + paragraphs(*table.notes)
    )
