"""Rows and tables as papers printed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sentdist.errors import DataError
from sentdist.report.columns import AVERAGE

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

    ours: title of the table of ours that it is about, where its columns alone do not tell (two benchmarks have a column CR).
    also: column of ours -> the printed one that it stands for as well, where the paper's own rows were scored so.
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
    ours: str | None = None
    also: Mapping[str, str] = field(default_factory=dict)

    def columns_in(self, columns: Sequence[str]) -> dict[str, str]:
        """Printed column -> the column of a table of ours that it is set beside. Averages are compared only over the same tasks."""
        known = {printed: ours for ours, printed in self.also.items() if ours in columns}
        tasks = set(self.columns if len(self.columns) > 1 else STS_COLUMNS) - {AVERAGE}
        is_same = {known.get(task, task) for task in tasks} == set(columns) - {AVERAGE}
        return {
            printed: ours for printed in self.columns if (ours := known.get(printed, printed)) in columns and (ours != AVERAGE or is_same)
        }

    def also_line(self, columns: Sequence[str]) -> str:
        """Whether a table of ours has the columns of `also`, in words; "" where the paper has none."""
        if not self.also:
            return ""
        return f"{'with' if set(self.also) <= set(columns) else 'without'} {' and '.join(self.also)}"

    def recipe(self, label: str) -> str | None:
        """The recipe that makes ours of a row; None: none does."""
        return self.recipes.get(label, self.recipes.get(""))

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
