"""Detect the separator and header of separated values; detect quotation marks that would lose rows or characters."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.errors import DataError
from sentdist.files import suffix_of

if TYPE_CHECKING:
    import pyarrow as pa


SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
LINES_LOOKED_AT = 200
MOST_ALIKE = 0.8  # share of the lines with the same number of fields
MOST_SPACED = 0.5  # share of the separators followed by a space, where they separate columns
LEAST_NUMBERS = 5  # below a header
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b")
DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
MOST_TITLES = 10  # rows that may precede the header
LONGEST_NAME, MOST_WORDS = 40, 4  # of a column name; a longer cell is a sentence


def usual_separator(path: Path) -> str:
    """Return the separator that the suffix implies."""
    return "\t" if suffix_of(path) == ".tsv" else ","


def separators(path: Path, lines: Sequence[str], known_names: Sequence[str]) -> list[str]:
    """Return the separators that give most lines the same number of fields, at least two, best first.

    Preferred are known names in the header, then separators that are no punctuation of sentences, then well-placed quotation marks, then a
    larger share of equal lines, then the suffix.
    """
    expected = usual_separator(path)
    found: list[tuple[bool, bool, bool, float, bool, int, str]] = []
    for separator in SEPARATORS:
        rows, is_sound = _parted(lines, separator)
        count, share = _most_common(rows)
        if count > 1 and share >= MOST_ALIKE and not (separator == "," and _are_decimal_commas(lines)):
            is_known = _has_known_names(rows, known_names)
            found.append((is_known, not _is_punctuation(rows), is_sound, share, separator == expected, count, separator))
    return [separator for *_, separator in sorted(found, reverse=True)]


def looks_like_one_column(lines: Sequence[str], separator: str, known_names: Sequence[str]) -> bool:
    """Whether the separator may be punctuation of sentences, and no known column name contradicts that."""
    rows = fields(lines, separator)
    return _is_punctuation(rows) and not _has_known_names(rows, known_names)


def _are_decimal_commas(lines: Sequence[str]) -> bool:
    """Whether each comma is inside a number, and another separator is in every line."""
    looked_at = [line for line in lines[:LINES_LOOKED_AT] if line.strip()]
    others = [one for one in SEPARATORS if one != "," and all(one in line for line in looked_at)]
    return bool(others) and all(DECIMAL_COMMA.sub("", line).count(",") == 0 for line in looked_at)


def _is_punctuation(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a space follows most separators, as in sentences."""
    behind = [cell.startswith(" ") for row in rows for cell in row[1:] if cell]
    return sum(behind) > MOST_SPACED * len(behind)


def _has_known_names(rows: Sequence[Sequence[str]], known_names: Sequence[str]) -> bool:
    return sum(_plain(cell) in known_names for cell in rows[0]) > 1


def fields(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the cells of the first 200 rows."""
    return _parted(lines, separator)[0]


def _parted(lines: Sequence[str], separator: str) -> tuple[list[list[str]], bool]:
    """The cells of the first rows, and whether each quotation mark is well placed. Between tabs marks are characters, unless only reading
    them as quotes (around tabs and line breaks) gives each row the same number of fields."""
    rows, is_sound = _read(lines, separator, quoting(separator))
    if quoting(separator) == csv.QUOTE_NONE and _most_common(rows)[1] < 1.0:
        in_marks, are_sound = _read(lines, separator, csv.QUOTE_MINIMAL)
        if are_sound and len({len(row) for row in in_marks}) == 1 and len(in_marks[0]) > 1:
            return in_marks, True
    return rows, is_sound


def _read(lines: Sequence[str], separator: str, how: Literal[0, 3]) -> tuple[list[list[str]], bool]:
    for strict in (True, False):
        rows: list[list[str]] = []
        reader = csv.reader(lines, delimiter=separator, quoting=how, strict=strict)
        try:
            for row in reader:
                if row:
                    rows.append(row)
                if len(rows) == LINES_LOOKED_AT:
                    break
            return rows or [[]], strict
        except csv.Error:  # a misplaced mark, a field above 128 kB (after an open mark), or the sample ends inside marks
            if strict and rows and reader.line_num >= len(lines):
                return rows, True
    return rows or [[]], False


def _most_common(rows: Sequence[Sequence[str]]) -> tuple[int, float]:
    """The most common number of fields, and its share of the rows."""
    count, times = Counter(map(len, rows)).most_common(1)[0]
    return count, times / len(rows)


def names_columns(rows: Sequence[Sequence[str]], known_names: Sequence[str]) -> bool:
    """Whether the first line is a header.

    It has two known names, a word above nothing but numbers, or short, distinct words that are no numbers and do not end a sentence. The
    first of three or more may be empty (pandas' index). Empty columns are ignored.
    """
    columns = [[_plain(row[place]) for row in rows if row[place:]] for place in range(len(rows[0]))]
    columns = [cells for cells in columns if any(cells)]
    first = [cells[0] for cells in columns]
    if sum(cell in known_names for cell in first) > 1:
        return True
    others = {cell for cells in columns for cell in cells[1:]}
    if len(set(first)) == len(first) and others.isdisjoint(first) and any(map(_is_above_numbers, columns)):
        return True
    named = columns[1:] if len(first) > 2 and not first[0] else columns
    return len(set(first)) == len(first) and all(_is_name(cells, known_names) and cells[0] not in others for cells in named)


def titles_above(rows: Sequence[Sequence[str]], known_names: Sequence[str]) -> int:
    """Return the number of rows above the header, such as a title in a spreadsheet: rows of one cell, or any rows above two known names."""
    if _has_known_names(rows, known_names):
        return 0
    count, _ = _most_common(rows)
    for number, row in enumerate(rows[1 : MOST_TITLES + 1], 1):
        if len(row) == count and _num_filled(row) > 1:
            are_titles = all(_num_filled(above) < 2 for above in rows[:number])
            if _has_known_names(rows[number:], known_names) or (are_titles and names_columns(rows[number:], known_names)):
                return number
    return 0


def _num_filled(row: Sequence[str]) -> int:
    return sum(bool(cell.strip()) for cell in row)


def _is_above_numbers(cells: Sequence[str]) -> bool:
    """Whether a column is a word above at least five numbers or dates and nothing else."""
    below = [cell for cell in cells[1:] if cell]
    is_word = cells[0][:1].isalpha() and len(cells[0]) > 3 and not any(letter.isdigit() for letter in cells[0].partition("(")[0])
    return is_word and len(below) >= LEAST_NUMBERS and len(below) == len(cells) - 1 and all(map(_is_number_or_date, below))


def _is_number_or_date(cell: str) -> bool:
    return _is_number(cell) or DATE.match(cell) is not None


def _is_name(cells: Sequence[str], known_names: Sequence[str]) -> bool:
    first = cells[0]
    is_short = len(first) <= LONGEST_NAME and len(first.split()) <= MOST_WORDS
    return bool(first) and is_short and not _is_number(first) and not _ends_sentence(cells, known_names)


def _ends_sentence(cells: Sequence[str], known_names: Sequence[str]) -> bool:
    """Whether the first cell of a column ends a sentence. A question mark may also end a known name, or a name of one or two words above
    cells that are no questions."""
    first = cells[0]
    if not first.endswith("?"):
        return first.endswith((".", "!"))
    return first.rstrip("? ") not in known_names and (len(first.split()) > 2 or any(cell.endswith("?") for cell in cells[1:]))


def _plain(cell: str) -> str:
    return cell.strip().strip('"').strip().casefold()


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def quoting(separator: str) -> Literal[0, 3]:
    return csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL


QUOTED = r'^"([^"]|"")*""([^"]|"")*"$'  # in quotation marks, with only doubled ones inside


def check_quotes(where: str, table: pa.Table, lines: Iterable[str], separator: str) -> None:
    """Call `refuse_open_quote` for the lines of a table if a field spans several lines; otherwise no rows can be lost."""

    if _occurs("\n", table):
        refuse_open_quote(where, lines, separator)


def check_escapes(where: str, table: pa.Table, lines: Iterable[str], separator: str) -> None:
    """Call `refuse_escaped_marks` for the lines of a table if a field has a backslash."""
    if _occurs("\\", table):
        refuse_escaped_marks(where, lines, separator)


def _occurs(text: str, table: pa.Table) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [column for column in table.columns if pa.types.is_large_string(column.type) or pa.types.is_string(column.type)]
    return any(pc.any(pc.match_substring(column, text)).as_py() for column in columns)


def refuse_escaped_marks(where: str, lines: Iterable[str], separator: str) -> None:
    """Raise DataError for backslash-escaped marks in a quoted field (MySQL, Spark): texts would keep backslashes and lose marks."""
    if (number := line_of_escaped_mark(lines, separator)) is not None:
        found = 'quotation marks behind backslashes (\\") inside a quoted field'
        remedy = 'Save the table again with doubled marks: Spark with escape=\'"\', pandas after read_csv(…, escapechar="\\\\").'
        raise DataError(
            where=f"{where}, line {number}", found=found, expected='doubled quotation marks, as in "say ""hi"" now"', remedy=remedy
        )


def line_of_escaped_mark(lines: Iterable[str], separator: str) -> int | None:
    """Return the number (from 1) of a line with an escaped mark where a strict reader finds no end of the field; None if there is none."""
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
            expected='a mark at the end of the field, and doubled marks inside, as in "say ""hi"" now"',
            remedy="Correct the line, or save the table again from a program that quotes, such as pandas or a spreadsheet.",
        )


def line_of_open_quote(lines: Iterable[str], separator: str) -> int | None:
    """Return the number (from 1) of the line whose field swallows later lines; None if there is none.

    A misplaced mark within one line (`"Hello" he said,…`) loses no row and is accepted.
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
    """Allow fields of up to `longest` characters in the module `csv`, whose default is 131,072."""
    before = csv.field_size_limit(longest)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def unquoted(table: pa.Table) -> pa.Table:
    """Return the table with quoted fields (with doubled marks inside, as pandas writes them) unquoted; others keep their marks."""
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
    """Like `unquoted`, for one field."""
    inner = cell[1:-1]
    is_quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else cell
