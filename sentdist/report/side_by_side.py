"""Our table beside a printed one: two lines a system, and what each side gains over its own base."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentdist.errors import DataError
from sentdist.report.printed import PaperTable
from sentdist.report.tables import ResultTable


@dataclass(frozen=True, kw_only=True)
class SideBySideRow:
    """Ours and the paper's scores of one system, and what each gains over its own base row; None where there is no such number."""

    label: str
    paper_label: str
    ours: tuple[float | None, ...]
    paper: tuple[float, ...]
    our_gain: tuple[float | None, ...]
    paper_gain: tuple[float | None, ...]
    what: str = ""  # encoder, batch and seeds of ours, which are not the paper's

    @property
    def whose(self) -> str:
        """What our line of the two is."""
        return f"ours: {self.what}" if self.what else "ours"


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Our table beside one of the paper's, over the columns that both have."""

    paper: PaperTable
    columns: tuple[str, ...]
    rows: tuple[SideBySideRow, ...]
    note: str


def side_by_side(table: ResultTable, paper: PaperTable, *, matches: Mapping[str, str], base: str | None) -> SideBySide:
    """Put our lines beside the paper's rows, over the columns that stand for the same thing.

    matches: our label -> the paper's; base: our label of the row that gains are measured from (the paper's is its table's `base`).
    Encoders, data and budgets differ, so gains compare and levels do not.
    Raises DataError for a label that a table lacks, and where no column is shared.
    """
    shared = paper.columns_in(table.columns)
    if not shared:
        raise DataError(
            where=f"{paper.paper}, Table {paper.number}",
            found=f"our columns {list(table.columns)}",
            expected=f"some of {list(paper.columns)}",
            remedy="Call our columns as the paper does.",
        )
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
    note = "Levels depend on encoder, data and budget; what can be compared is each side's gain over its own base, the signed number."
    return SideBySide(paper=paper, columns=tuple(shared), rows=tuple(rows), note=note)


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
