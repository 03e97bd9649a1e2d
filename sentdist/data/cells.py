"""Check and convert cells of tables, with errors that name the row; collect rows without a sentence."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sentdist.errors import DataError, brief, counted

if TYPE_CHECKING:
    import pyarrow as pa


GROUP = "group"  # column of a source that names the group of a row

ROW_FOR_EACH = "Write a row for each text in a list (pandas: explode())."
NLI_LABELS: Mapping[str, float] = {"contradiction": 0.0, "neutral": 1.0, "entailment": 2.0}
NO_GOLD = ("", "-", "-1")  # NLI label of a pair on which annotators disagree
TRUTHS = {"false": 0.0, "true": 1.0}


INVISIBLE = frozenset("\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff")  # not spaces for Python


def is_invisible(text: str) -> bool:
    """Whether a text is empty or consists of spaces, joiners and direction marks only."""
    return all(letter.isspace() or letter in INVISIBLE for letter in text)


def row_name(row: int) -> str:
    """Return the name of a row in messages: counted from 1, without the header."""
    return f"row {row + 1:,}"


def text_in(cell: object, *, where: str, row: int, column: str, may_be_empty: bool = True) -> str:
    """Return the text of a cell, "" for None; raise DataError for other types, and for a blank text unless it may be empty."""
    if cell is not None and not isinstance(cell, str):
        remedy = ROW_FOR_EACH if isinstance(cell, list) else "Correct the row, or name another column."
        raise DataError(where=where, found=f"{column} {brief(cell)} in {row_name(row)}", expected="a text", remedy=remedy)
    text = cell or ""
    if not may_be_empty and not text.strip():
        raise DataError(where=where, found=f"an empty {column} in {row_name(row)}", expected="a text", remedy="Complete or drop the row.")
    return text


def number_in(text: str) -> float | None:
    """Return a finite number (decimal point or comma), or true and false as 1 and 0; None for anything else."""
    plain = text.strip().casefold()
    if plain in TRUTHS:
        return TRUTHS[plain]
    try:
        number = float(plain.replace(",", "."))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded: JSON may contain lone surrogates."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def groups_in(table: pa.Table, rows: Iterable[int]) -> tuple[str, ...]:
    """Return the group of each of these rows of a table, "" for none; () without a column of groups."""
    if GROUP not in table.column_names:
        return ()
    cells = table[GROUP].to_pylist()
    return tuple("" if cells[row] is None else str(cells[row]) for row in rows)


@dataclass
class LeftOut:
    """Collects the numbers of rows without a sentence, in order; a file may be read twice."""

    rows: dict[int, None] = field(default_factory=dict)

    def kept(self, batch: Mapping[str, Sequence[object]], column: str, first: int) -> dict[str, list[object]]:
        """Return the rows of a batch that are not blank in a column; `first` is the number of its first row in the file."""
        lacking = {place for place, cell in enumerate(batch[column]) if is_blank(cell)}
        self.rows |= dict.fromkeys(first + place for place in sorted(lacking))
        return {name: [cell for place, cell in enumerate(cells) if place not in lacking] for name, cells in batch.items()}

    def row_in_file(self, number: int) -> int:
        """Return the row of the sentence with that number, both from 0."""
        return number + bisect_right([row - place for place, row in enumerate(self.rows)], number)

    @property
    def line(self) -> str:
        """A sentence on these rows; "" without any."""
        if not self.rows:
            return ""
        are = "is" if len(self.rows) == 1 else "are"
        first = row_name(next(iter(self.rows)))
        return f"{counted(len(self.rows), 'row')} without a sentence {are} left out, {first}{' first' if len(self.rows) > 1 else ''}."


def is_blank(cell: object) -> bool:
    """Whether a cell is None or has no visible character."""
    return cell is None or (isinstance(cell, str) and is_invisible(cell))
