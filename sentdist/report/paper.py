"""What a paper printed, and how our table looks beside a printed one."""

from __future__ import annotations

import html
import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sentdist.errors import DataError
from sentdist.plan.papers import PAPERS
from sentdist.report.cell_facts import CellFacts
from sentdist.report.tables import ResultTable
from sentdist.table_text import markdown_table, markdown_text

Facts = TypeVar("Facts")

STS_COLUMNS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")
TRANSFER_COLUMNS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "Avg")
FAQ_COLUMNS = ("Acc@1", "Acc@3", "Acc@5", "MAP")


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One printed row: scores × 100 in the order of the table's columns, and the columns printed with a star (p < 0.05).

    printed: column -> what the paper has there, where that is a misprint and the score is what it must have meant.
    """

    label: str
    scores: tuple[float, ...]
    starred: tuple[str, ...] = ()
    printed: Mapping[str, float] = field(default_factory=dict)


# Of SimCSE's own paper (arXiv 2104.08821, Table 5, BERT-base): both RSE and SupMPN print it as the row to beat.
SIMCSE_SUPERVISED = PaperRow(label="SimCSE, supervised", scores=(75.30, 84.67, 80.19, 85.40, 80.82, 84.25, 80.39, 81.57))


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One printed table. base: the row that gains are measured from; None: there is none. notes: misprints and doubts.

    recipes: row -> the recipe that makes ours of it, for rows that this project can make; "" stands for all rows that are not named.
    """

    number: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...] = ()
    base: str | None
    recipes: Mapping[str, str] = field(default_factory=dict)
    paper: str

    def row(self, label: str) -> PaperRow:
        """The row of this label; DataError with the labels that exist."""
        for row in self.rows:
            if row.label == label:
                return row
        raise DataError(
            where=f"{self.paper}, Table {self.number}",
            found=repr(label),
            expected=f"one of {[row.label for row in self.rows]}",
            remedy="Match our rows to the paper's own labels.",
        )


@dataclass(frozen=True, kw_only=True)
class PaperTables(Generic[Facts]):
    """A paper's tables and how our cells find their rows.

    facts: what is told of a cell, in the paper's terms; None: nothing.
    twins: number of a table -> our label -> printed row, from the facts of labels.
    besides: the tables that have rows of ours, from the facts of a table's labels.
    """

    tables: Mapping[str, PaperTable]
    facts: Callable[[CellFacts], Facts]
    twins: Callable[[Mapping[str, Facts]], Mapping[str, Mapping[str, str]]]
    besides: Callable[[ResultTable, Mapping[str, Facts]], Iterator[Beside]]

    def our_rows(self, cells: Mapping[str, CellFacts]) -> Mapping[str, Mapping[str, str]]:
        """Number of a table -> our label -> printed row."""
        return self.twins({label: self.facts(cell) for label, cell in cells.items()})

    def beside(self, table: ResultTable, cells: Mapping[str, CellFacts]) -> Iterator[Beside]:
        """The paper's tables with our rows under theirs."""
        return self.besides(table, {label: self.facts(cell) for label, cell in cells.items()})


def tables_of(name: str) -> PaperTables[Any]:
    """The tables of a paper of `plan/papers.py`."""
    found: PaperTables[Any] = importlib.import_module(PAPERS[name].tables).TABLES
    return found


@dataclass(frozen=True, kw_only=True)
class BesideRow:
    """Ours and the paper's scores of one system, and what each gains over its own base row; None where there is no such number."""

    label: str
    paper_label: str
    ours: tuple[float | None, ...]
    paper: tuple[float, ...]
    our_gain: tuple[float | None, ...]
    paper_gain: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Our table beside one of the paper's, over the columns that both have."""

    paper: PaperTable
    columns: tuple[str, ...]
    rows: tuple[BesideRow, ...]
    note: str


def beside_paper(
    table: ResultTable, paper: PaperTable, *, matches: Mapping[str, str], base: str | None, columns: Mapping[str, str] | None = None
) -> Beside:
    """Put our lines beside the paper's rows.

    matches: our label -> the paper's; base: our label of the row that gains are measured from (the paper's is its table's `base`);
    columns: our column -> the paper's where the names differ. Encoders, data and budgets differ, so gains compare and levels do not.
    Raises DataError for a label or column that the paper lacks.
    """
    names = {column: (columns or {}).get(column, column) for column in table.columns}
    shared = [column for column in table.columns if names[column] in paper.columns]
    if not shared:
        raise DataError(
            where=f"{paper.paper}, Table {paper.number}",
            found=f"our columns {list(table.columns)}",
            expected=f"some of {list(paper.columns)}",
            remedy="Map our columns to the paper's names.",
        )
    places = [paper.columns.index(names[column]) for column in shared]
    paper_base = [paper.row(paper.base).scores[place] for place in places] if paper.base is not None else [None] * len(places)
    our_base = _means(table, base, shared) if base is not None else [None] * len(shared)
    rows = []
    for label, paper_label in matches.items():
        ours = _means(table, label, shared)
        printed = [paper.row(paper_label).scores[place] for place in places]
        rows.append(
            BesideRow(
                label=label,
                paper_label=paper_label,
                ours=tuple(ours),
                paper=tuple(printed),
                our_gain=_gains(ours, our_base if label != base else []),
                paper_gain=_gains(printed, paper_base if paper_label != paper.base else []),
            )
        )
    note = "Levels depend on encoder, data and budget; what can be compared is each side's gain over its own base, the signed number."
    return Beside(paper=paper, columns=tuple(names[column] for column in shared), rows=tuple(rows), note=note)


def beside_to_markdown(beside: Beside) -> str:
    """Two lines a system: ours, then the paper's."""
    rows = []
    for row in beside.rows:
        rows.append((markdown_text(row.label), "ours", *_cells(row.ours, row.our_gain)))
        rows.append((markdown_text(row.paper_label), "paper", *_cells(row.paper, row.paper_gain)))
    title = f"### Beside the paper's Table {beside.paper.number}: {markdown_text(beside.paper.caption)}"
    notes = " ".join(map(markdown_text, (beside.note, *beside.paper.notes)))
    table = markdown_table(("", "", *map(markdown_text, beside.columns)), rows, num_left=2)
    return "\n".join([title, "", table, "", f"<sub>{notes}</sub>", ""])


def beside_to_html(beside: Beside) -> str:
    """The same as a `<figure>`."""
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in beside.columns)
    body = []
    for row in beside.rows:
        for kind, label, scores, gains in (
            ("ours", row.label, row.ours, row.our_gain),
            ("paper", row.paper_label, row.paper, row.paper_gain),
        ):
            cells = "".join(f"<td>{_html_cell(score, gain)}</td>" for score, gain in zip(scores, gains, strict=True))
            body.append(f'<tr class="{kind}"><th scope="row">{html.escape(label)}</th><td class="who">{kind}</td>{cells}</tr>')
    notes = html.escape(" ".join((beside.note, *beside.paper.notes)))
    title = html.escape(f"Beside the paper's Table {beside.paper.number}: {beside.paper.caption}")
    return (
        f'<figure class="results beside"><figcaption>{title}</figcaption><div class="scroll"><table><thead><tr><th></th><th></th>{head}</tr>'
        f'</thead><tbody>{"".join(body)}</tbody></table></div><p class="notes">{notes}</p></figure>'
    )


def _means(table: ResultTable, label: str, columns: Sequence[str]) -> list[float | None]:
    line = next((line for line in table.lines if line.label == label), None)
    if line is None:
        raise DataError(
            where=f"table {table.title!r}",
            found=repr(label),
            expected=f"one of {[line.label for line in table.lines]}",
            remedy="Match the labels of our own table.",
        )
    return [summary.mean if (summary := line.cells[column].summary) else None for column in columns]


def _gains(scores: Sequence[float | None], base: Sequence[float | None]) -> tuple[float | None, ...]:
    """Scores minus the base's; without a base (it has no gain over itself) all None."""
    return tuple(
        None if score is None or other is None else score - other for score, other in itertools.zip_longest(scores, base, fillvalue=None)
    )


def _cells(scores: Sequence[float | None], gains: Sequence[float | None]) -> list[str]:
    return [
        "–" if score is None else f"{score:.2f}" + ("" if gain is None else f" ({gain:+.2f})")
        for score, gain in zip(scores, gains, strict=True)
    ]


def _html_cell(score: float | None, gain: float | None) -> str:
    if score is None:
        return "–"
    tone = "" if gain is None else "worse" if gain < -0.005 else "better" if gain > 0.005 else ""
    return f'<span class="mean">{score:.2f}</span>' + ("" if gain is None else f'<span class="gain {tone}">{gain:+.2f}</span>')
