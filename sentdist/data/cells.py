"""Check and convert cells of tables, with errors that name the row; collect rows without a sentence."""

from __future__ import annotations

import math
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import DataError, brief, counted, listed, near_file
from sentdist.files import ARROW, GZIP, LINES, PARQUET, PLAIN_SUFFIX, SEPARATED, SHOWN_TABLES, is_called_a_file, suffix_of

if TYPE_CHECKING:
    import pyarrow as pa


GROUP = "group"  # column of a source that names the group of a row

ROW_FOR_EACH = "Write a row for each text in a list (pandas: explode())."
TRUTHS = {"false": 0.0, "true": 1.0}


INVISIBLE = frozenset("\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff")  # not spaces for Python


def is_invisible(text: str) -> bool:
    """Whether a text is empty or consists of spaces, joiners and direction marks only."""
    return all(letter.isspace() or letter in INVISIBLE for letter in text)


def row_name(row: int) -> str:
    """Return the name of a row in messages: counted from 1, without the header."""
    return f"row {row + 1:,}"


def text_in(cell: object, *, where: str, row: int, column: str) -> str:
    """Return the text of a cell, "" for None; raise DataError for other types."""
    if cell is not None and not isinstance(cell, str):
        remedy = ROW_FOR_EACH if isinstance(cell, list) else "Correct the row, or name another column."
        raise DataError(where=where, found=f"{column} {brief(cell)} in {row_name(row)}", expected="a text", remedy=remedy)
    return cell or ""


def some_text_in(cell: object, *, where: str, row: int, column: str) -> str:
    """Return the text of a cell; raise DataError for other types and for blank text."""
    text = text_in(cell, where=where, row=row, column=column)
    if not text.strip():
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


def with_inner_fields(row: dict[str, object]) -> dict[str, object]:
    """Return an object with the fields of inner objects flattened, named by their path: ticket.question."""
    if not any(isinstance(value, dict) for value in row.values()):
        return row
    inner = {f"{name}.{field}": value for name, one in row.items() if isinstance(one, dict) for field, value in one.items()}
    return {name: value for name, value in row.items() if not isinstance(value, dict)} | with_inner_fields(inner)


PARQUET_PARTS = "import sys, pyarrow.dataset as d, pyarrow.parquet as p; p.write_table(d.dataset(sys.argv[1]).to_table(), sys.argv[2])"


def what_is_wanted(sentence: object) -> str:
    """Return the `expected` of an error for a cell that is no valid sentence."""
    if isinstance(sentence, str) and "\0" in sentence:
        return "a sentence without NUL characters (\\x00)"
    if isinstance(sentence, str) and not is_utf8(sentence):
        return "a sentence in UTF-8, without lone surrogates"
    return "a sentence, not a list" if isinstance(sentence, list) else "a sentence with at least one visible character"


def missing(path: Path) -> DataError:
    """Return the error for a path without a file, with the name that was probably meant."""
    folder, expected = path.parent, f"a file of sentences: .txt with one a line, {ARROW}, {SHOWN_TABLES}"
    if path.is_dir():
        return DataError(where=str(path), found="a folder", expected=expected, remedy=file_of_folder(path))
    if len(path.name.split()) > 1 and not is_called_a_file(path) and folder == Path():
        return DataError(where=brief(str(path)), found="a sentence", expected=expected, remedy="Name a file.")
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    closest = near_file(path.name, names)
    remedy = f'Did you mean "{folder / closest}"?' if closest else parts_by_pattern(path) or "Check the path."
    return DataError(where=str(path), found="no such file", expected=expected, remedy=remedy)


def file_of_folder(folder: Path) -> str:
    """Return the remedy for a folder: name a file in it, or join the parts of one table."""
    inside = sorted(entry for entry in folder.iterdir() if is_called_a_file(entry) and entry.is_file())
    if not inside:
        return "It holds no such table."
    alike = [entry for entry in inside if suffix_of(entry) == suffix_of(inside[0]) and entry.suffix == inside[0].suffix]
    parts = f" {_in_one_file(folder / f'*{_ending(inside[0])}')}" if alike[1:] else ""
    return f"Name a file in it: {listed([str(entry) for entry in inside[:3]])}{' or another' if inside[3:] else ''}.{parts}"


def parts_by_pattern(path: Path) -> str:
    """Return the remedy for a pattern of the parts of one table; "" for other paths."""
    return _in_one_file(path) if is_pattern(path) else ""


def is_pattern(path: Path) -> bool:
    """Whether a name is a shell pattern of several files."""
    return any(letter in path.name for letter in "*?[") and is_called_a_file(path)


def _in_one_file(pattern: Path) -> str:
    """How to join the files of a pattern, with a command if there is one for their kind."""
    whole = f"{pattern.parent.name or 'all'}{_ending(pattern)}"
    if any(letter in str(pattern.parent) for letter in "*?[ '\""):
        return "Parts of one table are put into one file first."
    match suffix_of(pattern):
        case kind if kind in (LINES, PLAIN_SUFFIX):
            command = f"cat {pattern} > {whole}"
        case kind if kind in SEPARATED and pattern.suffix == kind:
            command = f"awk 'NR == 1 || FNR > 1' {pattern} > {whole}"  # the header only once
        case kind if kind == PARQUET and pattern.name == f"*{PARQUET}":
            command = f"python -c {shlex.quote(PARQUET_PARTS)} {pattern.parent} {whole}"
        case _:
            return "Parts of one table are put into one file first."
    return f"Parts of one table are put into one file first: {command}"


def _ending(path: Path) -> str:
    """The suffix of a file, with .gz."""
    return f"{suffix_of(path)}{path.suffix}" if path.suffix.lower() == GZIP and suffix_of(path) != GZIP else path.suffix


def no_rows(name: str) -> DataError:
    """Return the error for a file without sentences."""
    return DataError(where=name, found="no rows", expected="at least one sentence", remedy="Check the program that wrote it.")


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


@dataclass
class OnlyNothing:
    """Collects rows whose sentence is a null word of databases and spreadsheets, by number; a file may be read twice."""

    rows: dict[int, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """A sentence on these rows; "" without any."""
        if not self.rows:
            return ""
        row, word = next(iter(self.rows.items()))
        how_many = counted(len(self.rows), "row")
        return (
            f"{how_many} {'holds' if len(self.rows) == 1 else 'hold'} only a null word, such as {word} in {row_name(row)}: "
            "it is read as a sentence. Clear the cell if no sentence is meant."
        )


def is_blank(cell: object) -> bool:
    """Whether a cell is None or has no visible character."""
    return cell is None or (isinstance(cell, str) and is_invisible(cell))
