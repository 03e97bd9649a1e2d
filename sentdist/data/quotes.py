"""Quotation marks in tables. Those that parsers misread without an error (opened and never closed, or behind backslashes) are refused;
those that a program put around a tab-separated field are taken off."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sentdist.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

QUOTED = r'^"([^"]|"")*""([^"]|"")*"$'  # in quotation marks, with doubled ones inside and no others


def check_quotes(where: str, table: pa.Table, lines: Iterable[str], separator: str) -> None:
    """Look through the lines that a table was read from, if some field of it holds several; nothing else can have lost rows.

    Raises:
        DataError: a field that begins with a quotation mark goes over several lines, and what ends it ends no field.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [column for column in table.columns if pa.types.is_large_string(column.type) or pa.types.is_string(column.type)]
    if any(pc.any(pc.match_substring(column, "\n")).as_py() for column in texts):
        refuse_open_quote(where, lines, separator)


def check_escapes(where: str, table: pa.Table, lines: Iterable[str], separator: str) -> None:
    """`refuse_escaped_marks` for the lines that a table was read from, if some field of it holds a backslash."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [column for column in table.columns if pa.types.is_large_string(column.type) or pa.types.is_string(column.type)]
    if any(pc.any(pc.match_substring(column, "\\")).as_py() for column in texts):
        refuse_escaped_marks(where, lines, separator)


def refuse_escaped_marks(where: str, lines: Iterable[str], separator: str) -> None:
    """Raise DataError for a quoted field with marks behind backslashes, as MySQL and Spark write them: the first would end the field, and
    texts would keep backslashes and lose marks."""
    if (number := line_of_escaped_mark(lines, separator)) is not None:
        raise DataError(
            where=f"{where}, line {number}",
            found='quotation marks behind backslashes (\\") inside a field in marks',
            expected='them doubled, as in "say ""hi"" now"',
            remedy='Save the table again so: Spark with escape=\'"\', pandas after read_csv(…, escapechar="\\\\").',
        )


def line_of_escaped_mark(lines: Iterable[str], separator: str) -> int | None:
    """The number, from 1, of a line with a mark behind a backslash where a strict reader finds no end of the field; None: none."""
    last, done = "", 0

    def noted() -> Iterator[str]:
        nonlocal last
        for line in lines:
            last = line
            yield line

    source = noted()
    with long_fields():
        while True:
            reader = csv.reader(source, delimiter=separator, strict=True)
            try:
                for _ in reader:
                    pass
                return None
            except csv.Error:
                done += reader.line_num
                if '\\"' in last:
                    return done


def refuse_open_quote(where: str, lines: Iterable[str], separator: str) -> None:
    """Raise DataError where `line_of_open_quote` finds a line."""
    if (number := line_of_open_quote(lines, separator)) is not None:
        raise DataError(
            where=f"{where}, line {number}",
            found="a field that a quotation mark opens and none closes: rows up to the next mark would be part of it",
            expected='a mark at the end of a field, too; inside a field marks are doubled, as in "say ""hi"" now"',
            remedy="Correct the line, or save the table again from a program that quotes, such as pandas or a spreadsheet.",
        )


def line_of_open_quote(lines: Iterable[str], separator: str) -> int | None:
    """The number, from 1, of the line whose field swallows later ones; None if there is none.

    A mark in the wrong place of one line (`"Hello" he said,…`) loses no row, and is let through.
    """
    source, done = iter(lines), 0
    with long_fields():
        while True:
            reader = csv.reader(source, delimiter=separator, strict=True)
            read = 0
            try:
                for _ in reader:
                    read = reader.line_num
                return None
            except csv.Error:
                if reader.line_num > read + 1:
                    return done + read + 1
                done += reader.line_num


@contextmanager
def long_fields(longest: int = sys.maxsize) -> Iterator[None]:
    """Fields of so many letters may be read in this context; the module `csv` refuses more than 131,072 otherwise."""
    before = csv.field_size_limit(longest)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def unquoted(table: pa.Table) -> pa.Table:
    """Fields with quotation marks as pandas writes them, in marks themselves and with those inside doubled; others keep their marks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, column in enumerate(table.column_names):
        if not pc.any(pc.match_substring_regex(table[column], QUOTED)).as_py():
            continue
        inner = pc.replace_substring(pc.utf8_slice_codeunits(table[column], 1, -1), '""', '"')
        texts = pc.if_else(pc.match_substring_regex(table[column], QUOTED), inner, table[column])
        table = table.set_column(place, pa.field(column, pa.large_string()), texts.cast(pa.large_string()))
    return table


def unquoted_cell(cell: str) -> str:
    """`unquoted` for one field."""
    inner = cell[1:-1]
    is_quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else cell
