"""Rows of a file that hold no sentence: which are left out, how the others are counted in the file, and which say so in a word."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sentdist.data.cells import is_invisible, row_name
from sentdist.errors import counted


@dataclass
class LeftOut:
    """Of one file, as far as it was read; a file may be read twice. rows: their numbers, in order."""

    rows: dict[int, None] = field(default_factory=dict)

    def kept(self, batch: Mapping[str, Sequence[object]], column: str, first: int) -> dict[str, list[object]]:
        """The rows of a batch that have something in a column. first: the number of the batch's first row in the file."""
        lacking = {place for place, cell in enumerate(batch[column]) if is_blank(cell)}
        self.rows |= dict.fromkeys(first + place for place in sorted(lacking))
        return {name: [cell for place, cell in enumerate(cells) if place not in lacking] for name, cells in batch.items()}

    def row_in_file(self, number: int) -> int:
        """The row, from 0, of what is the sentence of that number, from 0."""
        return number + bisect_right([row - place for place, row in enumerate(self.rows)], number)

    @property
    def line(self) -> str:
        """For people; "" where there are none."""
        if not self.rows:
            return ""
        are = "is" if len(self.rows) == 1 else "are"
        first = row_name(next(iter(self.rows)))
        return f"{counted(len(self.rows), 'row')} without a sentence {are} left out, {first}{' first' if len(self.rows) > 1 else ''}."


@dataclass
class OnlyNothing:
    """Rows that are read as sentences and hold a word that databases and spreadsheets write for no value. rows: their words, by number;
    a file may be read twice."""

    rows: dict[int, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """For people; "" where there are none."""
        if not self.rows:
            return ""
        row, word = next(iter(self.rows.items()))
        how_many = counted(len(self.rows), "row")
        return (
            f"{how_many} {'holds' if len(self.rows) == 1 else 'hold'} nothing but a word for no value, such as {word} in {row_name(row)}: "
            "it is read as a sentence. Empty the cell where none is meant."
        )


def is_blank(cell: object) -> bool:
    """Whether nothing stands in a cell."""
    return cell is None or (isinstance(cell, str) and is_invisible(cell))
