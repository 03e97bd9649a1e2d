"""Cells of a table that are to hold texts, or numbers; an error names the row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sentdist.errors import DataError, brief

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = "group"  # the column of a source that says which rows belong together

ROW_FOR_EACH = "Write a row for each text in a list: of pandas, explode() does it."
TRUTHS = {"false": 0.0, "true": 1.0}


INVISIBLE = frozenset("\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff")  # that are no spaces to Python


def is_invisible(text: str) -> bool:
    """Whether a text has no visible character: it is empty, or of spaces, joiners and marks of direction alone."""
    return all(letter.isspace() or letter in INVISIBLE for letter in text)


def row_name(row: int) -> str:
    """How a person counts the row with this index: from 1, without the header."""
    return f"row {row + 1:,}"


def text_in(cell: object, *, where: str, row: int, column: str) -> str:
    """The text of a cell, "" of an empty one. Raises DataError for what is no text."""
    if cell is not None and not isinstance(cell, str):
        raise DataError(
            where=where,
            found=f"{column} {brief(cell)} in {row_name(row)}",
            expected="a text",
            remedy=ROW_FOR_EACH if isinstance(cell, list) else "Correct the row, or name another column.",
        )
    return cell or ""


def some_text_in(cell: object, *, where: str, row: int, column: str) -> str:
    """The text of a cell. Raises DataError for what is no text, and for one without a visible character."""
    text = text_in(cell, where=where, row=row, column=column)
    if not text.strip():
        raise DataError(where=where, found=f"an empty {column} in {row_name(row)}", expected="a text", remedy="Complete or drop the row.")
    return text


def number_in(text: str) -> float | None:
    """A finite number with a point or a comma, true or false; None for anything else."""
    plain = text.strip().casefold()
    if plain in TRUTHS:
        return TRUTHS[plain]
    try:
        number = float(plain.replace(",", "."))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_utf8(text: str) -> bool:
    """Whether a text can be written at all: JSON can hold half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def groups_in(table: pa.Table, rows: Iterable[int]) -> tuple[str, ...]:
    """What these rows of a table belong to, by its column of groups, "" for nothing; () without such a column."""
    if GROUP not in table.column_names:
        return ()
    cells = table[GROUP].to_pylist()
    return tuple("" if cells[row] is None else str(cells[row]) for row in rows)


def with_inner_fields(row: dict[str, object]) -> dict[str, object]:
    """An object with the fields of objects in it beside its own, called by what they stand in: ticket.question."""
    if not any(isinstance(value, dict) for value in row.values()):
        return row
    inner = {f"{name}.{field}": value for name, one in row.items() if isinstance(one, dict) for field, value in one.items()}
    return {name: value for name, value in row.items() if not isinstance(value, dict)} | with_inner_fields(inner)
