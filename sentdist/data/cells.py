"""Cells of a table that are to hold texts; what holds none is told with its row, counted from 0."""

from __future__ import annotations

from sentdist.errors import DataError, brief


def text_in(cell: object, *, where: str, row: int, column: str) -> str:
    """The text of a cell, "" of an empty one. Raises DataError for what is no text."""
    if cell is not None and not isinstance(cell, str):
        raise DataError(
            where=where, found=f"{column} {brief(cell)} in row {row}", expected="a text", remedy="Correct the row, or name another column."
        )
    return cell or ""


def some_text_in(cell: object, *, where: str, row: int, column: str) -> str:
    """The text of a cell. Raises DataError for what is no text, and for one without a visible character."""
    text = text_in(cell, where=where, row=row, column=column)
    if not text.strip():
        raise DataError(where=where, found=f"an empty {column} in row {row}", expected="a text", remedy="Complete or drop the row.")
    return text
