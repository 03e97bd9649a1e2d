"""Read sentences from a file of any size or standard input in batches; memory holds one batch."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, Protocol, TypeVar

from sentdist.data.cells import (
    ROW_FOR_EACH,
    LeftOut,
    OnlyNothing,
    is_blank,
    is_utf8,
    missing,
    no_rows,
    row_name,
    what_is_wanted,
    with_inner_fields,
)
from sentdist.data.own.columns import ANCHORS, POSITIVES, is_called_beside
from sentdist.data.own.files import NOTHING
from sentdist.data.sources.csv_dialect import long_fields, refuse_escaped_marks, refuse_open_quote, unquoted_cell
from sentdist.data.sources.file_facts import check_columns, refuse_repeated
from sentdist.data.sources.files import read_arrow, read_objects
from sentdist.data.sources.json_lines import rows_in
from sentdist.data.sources.separated import FileFormat, are_in_marks, encoding_of, format_notes, header_names, said_separator, source_format
from sentdist.errors import DataError, brief, counted, listed
from sentdist.files import (
    ARROW,
    GZIP,
    LINES,
    OBJECTS,
    PARQUET,
    PLAIN_SUFFIX,
    READ,
    SEPARATED,
    SHOWN_READ,
    SHOWN_TABLES,
    bounded_lines,
    is_called_a_file,
    open_text,
    other_kind,
    reading,
    suffix_of,
    unreadable,
)

PLAIN = ("", PLAIN_SUFFIX)  # one sentence per line; "" for a shell's <(command)
SENTENCE = "sentence"  # name of the only column of a plain file
LONGEST_LINE = 1 << 26  # characters; a file without line ends would fill the memory

RowValues = dict[str, list[object]]  # by column
FileShape = tuple[tuple[str, ...], int | None]  # columns, and the number of rows if the file states it
AnyRow = TypeVar("AnyRow")


class RowReader(Protocol):
    """Reader for a kind of file."""

    def shape(self) -> FileShape:
        """Return the shape without reading all rows; raise DataError without rows, or for repeated column names."""
        ...

    def batches(self, wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
        """Yield the unconverted values of columns, `num_rows` rows at a time; raise DataError for an unreadable row."""
        ...


def row_reader(path: Path | None, file_format: FileFormat) -> RowReader:
    """Return the reader for the suffix of a file; None is standard input."""
    if path is None or suffix_of(path) in PLAIN:
        return _PlainLines(path, file_format)
    kinds: dict[str, Callable[[Path, FileFormat], RowReader]] = {LINES: _JsonLines, OBJECTS: _JsonObjects}
    kinds |= {PARQUET: _Parquet, ARROW: _Arrow}
    return (kinds | dict.fromkeys(SEPARATED, _SeparatedValues))[suffix_of(path)](path, file_format)


@dataclass(frozen=True)
class _PlainLines:
    path: Path | None
    file_format: FileFormat

    def shape(self) -> FileShape:
        return (SENTENCE,), None

    def batches(self, wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
        with _opened(self.path, self.file_format) as file:
            lines = (line.rstrip("\r\n") for line in bounded_lines(file, longest=LONGEST_LINE))
            yield from _batched(_without_empty_end(lines), wanted, num_rows)


@dataclass(frozen=True)
class _JsonLines:
    """A JSON object or array per line."""

    path: Path
    file_format: FileFormat

    def shape(self) -> FileShape:
        with _opened(self.path, self.file_format) as file:
            first = next(self._objects(file), None)
        if first is None:
            raise no_rows(str(self.path))
        return tuple(first), None

    def batches(self, wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
        with _opened(self.path, self.file_format) as file:
            rows = (tuple(row.get(column) for column in wanted) for row in self._objects(file))
            yield from _batched(rows, wanted, num_rows)

    def _objects(self, file: IO[str]) -> Iterator[dict[str, object]]:
        yield from map(with_inner_fields, rows_in(str(self.path), bounded_lines(file, longest=LONGEST_LINE)))


@dataclass(frozen=True)
class _SeparatedValues:
    """Values separated by commas, tabs or other characters, below a header."""

    path: Path
    file_format: FileFormat

    def shape(self) -> FileShape:
        with _opened(self.path, self.file_format) as file:
            header = _next_rows(self._cells(file), 1)
        if not header:
            raise no_rows(str(self.path))
        known = self._names(header[0])
        refuse_repeated(str(self.path), known)
        return tuple(known), None

    def batches(self, wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
        with _opened(self.path, self.file_format) as file:
            yield from _batched(self._rows(file, wanted), wanted, num_rows)

    def _rows(self, file: IO[str], wanted: Sequence[str]) -> Iterator[tuple[object, ...]]:
        rows = self._cells(file)
        header = self._names(next(rows))
        places = [header.index(column) for column in wanted]
        num_empty = 0
        for place_in_file, cells in enumerate(rows):
            if not any(cell.strip() for cell in cells):  # dropped at the end: spreadsheets write cells that were once used
                num_empty += 1
                continue
            yield from (("",) * len(places) for _ in range(num_empty))
            num_empty = 0
            if any(cell.strip() for cell in cells[len(header) :]):
                raise DataError(
                    where=f"{self.path}: {row_name(place_in_file)}",
                    found=f"{len(cells)} fields, such as {brief(cells[-1])}",
                    expected=f"{len(header)}, as the header has",
                    remedy="Quote sentences that contain the separator; the text after it would be lost.",
                )
            yield tuple(cells[place] if place < len(cells) else None for place in places)

    def _names(self, header: list[str]) -> list[str]:
        return header_names(header, is_tab=self.file_format.separator == "\t")

    def _cells(self, file: IO[str]) -> Iterator[list[str]]:
        """Rows that are not empty, read as in `read_separated`, without the `sep=` line. DataError for a field that is never closed."""
        separator = self.file_format.separator or ","
        begin = file.readline()
        while not begin.strip("\r\n") and begin:
            begin = file.readline()
        lines = file if said_separator(begin) is not None else chain([begin], file)
        if separator == "\t" and not are_in_marks(begin.rstrip("\r\n").split("\t")):
            for row in filter(None, csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)):
                yield [unquoted_cell(cell) for cell in row]
            return
        is_looked_through = has_backslash = False
        for row in filter(None, csv.reader(lines, delimiter=separator)):
            if not is_looked_through and any("\n" in cell or "\r" in cell for cell in row):
                with _opened(self.path, self.file_format) as again:
                    refuse_open_quote(str(self.path), again, separator)
                is_looked_through = True
            if not has_backslash and any("\\" in cell for cell in row):
                with _opened(self.path, self.file_format) as again:
                    refuse_escaped_marks(str(self.path), again, separator)
                has_backslash = True
            yield row


@dataclass(frozen=True)
class _JsonObjects:
    """A list of JSON objects, read as a whole."""

    path: Path
    file_format: FileFormat

    def shape(self) -> FileShape:
        objects = read_objects(self.path, encoding=self.file_format.encoding or "utf-8")
        return tuple(objects.column_names), objects.num_rows

    def batches(self, wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
        table = read_objects(self.path, encoding=self.file_format.encoding or "utf-8").select(list(dict.fromkeys(wanted)))
        yield from ({column: batch[column].to_pylist() for column in wanted} for batch in table.to_batches(num_rows))


@dataclass(frozen=True)
class _Parquet:
    path: Path
    file_format: FileFormat

    def shape(self) -> FileShape:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as table:
            if not table.metadata.num_rows:
                raise no_rows(str(self.path))
            return tuple(table.schema_arrow.names), table.metadata.num_rows

    def batches(self, wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=num_rows, columns=list(dict.fromkeys(wanted))):
                yield {column: batch.column(column).to_pylist() for column in wanted}


@dataclass(frozen=True)
class _Arrow:
    """An Arrow file or stream, memory-mapped."""

    path: Path
    file_format: FileFormat

    def shape(self) -> FileShape:
        table = read_arrow(self.path)
        if not table.num_rows:
            raise no_rows(str(self.path))
        return tuple(table.column_names), table.num_rows

    def batches(self, wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
        table = read_arrow(self.path).select(list(dict.fromkeys(wanted)))
        for first in range(0, table.num_rows, num_rows):
            yield {column: table[column].slice(first, num_rows).to_pylist() for column in wanted}


def _batched(rows: Iterator[tuple[object, ...]], wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
    while chunk := _next_rows(rows, num_rows):
        yield {column: list(values) for column, values in zip(wanted, zip(*chunk, strict=True), strict=True)}


def _next_rows(rows: Iterator[AnyRow], number: int) -> list[AnyRow]:
    with long_fields(LONGEST_LINE):
        return list(islice(rows, number))


def _without_empty_end(lines: Iterator[str]) -> Iterator[tuple[str]]:
    """Lines as rows, without empty ones at the end. Memory holds one line, regardless of their number."""
    first, num_empty = "", 0
    for line in lines:
        if not line.strip():
            first, num_empty = (line if not num_empty else first), num_empty + 1
            continue
        yield from ((first if not number else "",) for number in range(num_empty))
        num_empty = 0
        yield (line,)


@contextmanager
def _opened(path: Path | None, file_format: FileFormat) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdin
        return
    with open_text(path, encoding=file_format.encoding, newline="" if suffix_of(path) in SEPARATED else None) as file:
        yield file


STDIN = "-"
LOOKED_AT = 1 << 16  # characters at the beginning of a file
NAMED_ROWS = 5  # listed rows without a sentence
LONGEST_NOTHING = 2 * max(map(len, NOTHING))  # characters, with spaces around
ROWS_AT_ONCE = 16_384  # for `looked_through`
MOST_WORDS = 4  # of a column name; a longer cell is a sentence
TEXTS = (*ANCHORS, *POSITIVES, "text")  # names of columns that hold texts

TextColumns = dict[str, list[str]]


def looks_like_a_file(argument: str) -> bool:
    """Whether an argument names a file rather than a sentence: standard input, one word with a known suffix, or an existing file. A word
    without suffix or slash is a sentence, even if a file has that name."""
    if argument == STDIN or (len(argument.split()) == 1 and is_called_a_file(Path(argument))):
        return True
    place = os.path.expanduser(argument)
    return ("/" in argument or bool(Path(argument).suffix)) and os.path.exists(place) and not os.path.isdir(place)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Sentences of a file that is not read yet.

    Args:
        path: None is standard input.
        columns: columns of sentences.
        id_column: column of their ids; None without ids.
        shown: further columns to read; their cells may be empty.
        others: the remaining columns of the file.
        num_rows: None if unknown without reading.
        left_out: collects rows without a sentence; None: they raise DataError.
        or_else: added to the remedy of that error.
        nothing: collects rows with a null word, which are read as sentences.
    """

    path: Path | None
    columns: tuple[str, ...]
    file_format: FileFormat = field(default_factory=FileFormat)
    id_column: str | None = None
    shown: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    num_rows: int | None = None
    left_out: LeftOut | None = None
    or_else: str = ""
    nothing: OnlyNothing = field(default_factory=OnlyNothing)

    @property
    def name(self) -> str:
        return "standard input" if self.path is None else str(self.path)

    @property
    def notes(self) -> Sequence[str]:
        """Notes on an unusual format of the file."""
        return () if self.path is None else format_notes(self.file_format, self.path)

    def batches(self, num_rows: int) -> Iterator[TextColumns]:
        """Yield batches of `num_rows` rows (the last may be shorter): sentences, ids and shown columns as text, by column.

        Raises:
            DataError: no rows, a missing, blank or non-text sentence (naming its row), or an unreadable file.
        """
        wanted = (*self.columns, *([self.id_column] if self.id_column else []), *self.shown)
        done = 0
        with _readable(self.path):
            for batch in row_reader(self.path, self.file_format).batches(wanted, num_rows):
                for column in self.columns:
                    self._check(batch[column], column, done)
                if self.id_column is not None:
                    self._check_ids(batch, self.id_column, done)
                kept = batch if self.left_out is None else self.left_out.kept(batch, self.columns[0], done)
                done += len(batch[wanted[0]])
                if kept[wanted[0]]:
                    yield {column: ["" if value is None else str(value) for value in kept[column]] for column in wanted}
        if done == (0 if self.left_out is None else len(self.left_out.rows)):
            raise no_rows(self.name)

    def looked_through(self) -> Iterator[int]:
        """Read the whole file to find mistakes (DataError), and yield the number of rows read. Skips input that can be read only once."""
        done = 0
        for batch in self.batches(ROWS_AT_ONCE) if self.can_be_read_again else ():
            done += len(batch[self.columns[0]])
            yield done

    @property
    def can_be_read_again(self) -> bool:
        """False for standard input and pipes."""
        return self.path is not None and self.path.is_file()

    def _check(self, sentences: Sequence[object], column: str, done: int) -> None:
        for row, sentence in enumerate(sentences, start=done):
            if is_blank(sentence):
                if self.left_out is None:
                    raise self._blank({place: cell for place, cell in enumerate(sentences, start=done) if is_blank(cell)}, column)
                continue
            if not isinstance(sentence, str) or "\0" in sentence or not is_utf8(sentence):
                raise DataError(
                    where=f"{self.name}: {row_name(row)}, {column}",
                    found=brief(sentence),
                    expected=what_is_wanted(sentence),
                    remedy=ROW_FOR_EACH
                    if isinstance(sentence, list)
                    else "Remove or correct these rows: skipping them silently would shift all later rows.",
                )
            if len(sentence) <= LONGEST_NOTHING and sentence.strip() in NOTHING:
                self.nothing.rows[row] = sentence.strip()

    def _blank(self, cells: Mapping[int, object], column: str) -> DataError:
        """The error for rows without a sentence. cells: their content, by row."""
        rows = list(cells)
        named = ", ".join(str(row + 1) for row in rows[:NAMED_ROWS]) + (
            f" and {len(rows) - NAMED_ROWS:,} more" if rows[NAMED_ROWS:] else ""
        )
        return DataError(
            where=f"{self.name}: {f'rows {named}' if rows[1:] else row_name(rows[0])}, {column}",
            found="no sentences" if rows[1:] else brief(cells[rows[0]]),
            expected="a sentence with at least one visible character",
            remedy=f"Remove or fill these rows: skipping them silently would shift all later rows.{self.or_else}",
        )

    def _check_ids(self, batch: dict[str, list[object]], column: str, done: int) -> None:
        for row, (cell, sentence) in enumerate(zip(batch[column], batch[self.columns[0]], strict=True), start=done):
            if cell is None and (self.left_out is None or not is_blank(sentence)):
                expected = "an id for each sentence"
                remedy = "Fill the column, or omit --id."
                raise DataError(where=f"{self.name}: {row_name(row)}, {column}", found="no id", expected=expected, remedy=remedy)


def open_texts(
    name: str, *, columns: Sequence[str] = (), num_columns: int = 1, id_column: str | None = None, shown: Sequence[str] = ()
) -> Texts:
    """Find the sentences of a file: plain text with one per line, or a table; text may be compressed by gzip.

    Args:
        name: a path, or "-" for plain standard input.
        columns: may be empty if the file has exactly `num_columns` columns.

    Raises:
        DataError: a missing or empty file (with similar names), an unknown suffix, absent columns.
    """
    beside = [*([id_column] if id_column else []), *shown]
    if name == STDIN:
        _check_plain("standard input", beside, columns, num_columns)
        return Texts(path=None, columns=(SENTENCE,))
    path = Path(name).expanduser()
    if not path.exists() or path.is_dir():
        raise missing(path)
    if (kind := unreadable(path, may_be_pipe=_is_substituted(path))) is not None:
        raise DataError(where=name, found=kind, expected="a file of sentences, or -", remedy="Pipe the output of another program into -.")
    if path.is_file() and path.stat().st_size == 0:
        raise no_rows(name)
    if suffix_of(path) in PLAIN:
        _check_plain(name, beside, columns, num_columns)
        encoding = encoding_of(name, path)
        _check_no_table(name, path, encoding)
        return Texts(path=path, columns=(SENTENCE,), file_format=FileFormat(encoding=encoding))
    if suffix_of(path) not in READ:
        what_is_packed = "; for a compressed file with one sentence per line: zcat FILE | sentdist … -" if suffix_of(path) == GZIP else ""
        remedy = f"{other_kind(path)}{what_is_packed}."
        raise DataError(where=name, found=f"suffix {path.suffix}", expected=f"one of {SHOWN_READ}", remedy=remedy)
    file_format = source_format(name, path)
    with _readable(path):
        known, num_rows = row_reader(path, file_format).shape()
    if suffix_of(path) in SEPARATED and not columns:
        if len(known) == 1:
            _check_only_column(name, path, known[0])
        elif len(known) == num_columns:
            _check_named(name, known)
    chosen = tuple(columns) or (known if len(known) == num_columns else ())
    if len(chosen) != num_columns:
        raise DataError(
            where=name,
            found=f"columns {listed(known)}" if not columns else f"{counted(len(columns), 'column')} named, {', '.join(columns)}",
            expected="one that holds the sentences" if num_columns == 1 else f"{num_columns} that hold the sentences",
            remedy=f"Use {' '.join(f'--column {column}' for column in _likely(known)[:num_columns])}, or others.",
        )
    check_columns(name, known, [*chosen, *beside])
    others = tuple(column for column in known if column and column not in (*chosen, *beside))
    return Texts(
        path=path, columns=chosen, file_format=file_format, id_column=id_column, shown=tuple(shown), others=others, num_rows=num_rows
    )


def _likely(known: Sequence[str]) -> list[str]:
    """Columns sorted by name: usual names of texts first, names of row ids, groups and splits last."""
    return sorted(known, key=lambda name: (is_called_beside(name), name.casefold() not in TEXTS))


def _check_only_column(name: str, path: Path, header: str) -> None:
    """Raise DataError for another separator, and for a first line that is a sentence and would be lost."""
    mark = next((mark for mark in ";\t|," if mark in header), None)
    if mark is not None or _is_sentence(header):
        separator = "tabs" if suffix_of(path) == ".tsv" else "commas"
        found = f"one column, {brief(header)}"
        remedy = "Save it so, or as .txt with one sentence per line; if that is the column's name, use --column."
        raise DataError(where=name, found=found, expected=f"a first line that names the columns, separated by {separator}", remedy=remedy)


def _check_named(name: str, known: Sequence[str]) -> None:
    """Raise DataError for a first line of sentences, which would be lost, if no columns were named."""
    if (sentence := next(filter(_is_sentence, known), None)) is not None:
        remedy = "Add a header above it; if these are names, use --column."
        raise DataError(
            where=name, found=f"a first line of sentences, such as {brief(sentence)}", expected="one that names the columns", remedy=remedy
        )


def _is_sentence(header: str) -> bool:
    return len(header.split()) > MOST_WORDS or header.strip()[-1:] in tuple(".?!")


def _check_no_table(name: str, path: Path, encoding: str) -> None:
    """Raise DataError for a tab-separated table named .txt, as spreadsheets write it: each row would be a sentence."""
    if not path.is_file():
        return
    with _readable(path), open_text(path, encoding=encoding) as file:
        lines = [line for line in file.read(LOOKED_AT).splitlines()[:-1] if line.strip()]
    tabs = {line.count("\t") for line in lines}
    if len(lines) > 1 and len(tabs) == 1 and (number := tabs.pop()):
        remedy = f"Call the file {path.stem}.tsv and name its column (--column), or remove the tabs."
        raise DataError(
            where=name, found=f"{counted(number + 1, 'column')} separated by tabs", expected="one sentence per line", remedy=remedy
        )


def _is_substituted(path: Path) -> bool:
    """Whether a path is a shell's <(command): a pipe with a writer, unlike a named pipe, which may block forever."""
    return str(path).startswith(("/dev/fd/", "/proc/self/fd/"))


@contextmanager
def _readable(path: Path | None) -> Iterator[None]:
    with reading(
        path, expected="UTF-8 text, or a table of the kind that its suffix says", may_be_pipe=path is not None and _is_substituted(path)
    ):
        yield


def _check_plain(name: str, beside: Sequence[str], columns: Sequence[str], num_columns: int) -> None:
    if columns or beside or num_columns > 1:
        asked = ", ".join([*columns, *beside]) or f"{num_columns} columns"
        remedy = "Omit the names of columns, or give a table."
        raise DataError(
            where=name, found=f"plain text, and {asked} asked for", expected=f"a table with named columns: {SHOWN_TABLES}", remedy=remedy
        )
