"""The rows of a file of texts, of each kind that is read here: which columns it has, then their values, batch by batch."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Protocol, TypeVar

from sentdist.data.cells import row_name, with_inner_fields
from sentdist.data.quotes import long_fields, refuse_escaped_marks, refuse_open_quote, unquoted_cell
from sentdist.data.sources.arrow_files import read_arrow
from sentdist.data.sources.column_names import refuse_repeated
from sentdist.data.sources.files import read_objects
from sentdist.data.sources.json_lines import rows_in
from sentdist.data.sources.separated import FileFormat, are_in_marks, header_names, said_separator
from sentdist.data.text_errors import no_rows
from sentdist.errors import DataError, brief
from sentdist.reading import bounded_lines
from sentdist.table_files import ARROW, LINES, OBJECTS, PARQUET, PLAIN_SUFFIX, SEPARATED, open_text, suffix_of

PLAIN = ("", PLAIN_SUFFIX)  # one sentence a line; without a suffix, as a shell's <(command) is
SENTENCE = "sentence"  # what the only column of a plain file is called here
LONGEST_LINE = 1 << 26  # letters; a file without line ends would fill the memory

RowValues = dict[str, list[object]]  # by column
FileShape = tuple[tuple[str, ...], int | None]  # columns, and how many rows, where the file says so at its beginning
AnyRow = TypeVar("AnyRow")


class RowReader(Protocol):
    """How a kind of file is read."""

    def shape(self) -> FileShape:
        """Without reading all; DataError where there are no rows, or two columns of one name."""
        ...

    def batches(self, wanted: Sequence[str], num_rows: int) -> Iterator[RowValues]:
        """The values of columns as they stand, of `num_rows` rows at a time; DataError for a row that cannot be read."""
        ...


def row_reader(path: Path | None, file_format: FileFormat) -> RowReader:
    """The reader of a file, by its suffix; None is standard input."""
    if path is None or suffix_of(path) in PLAIN:
        return _PlainLines(path, file_format)
    kinds: dict[str, Callable[[Path, FileFormat], RowReader]] = {LINES: _JsonLines, OBJECTS: _JsonObjects}
    kinds |= {PARQUET: _Parquet, ARROW: _Arrow}
    return (kinds | dict.fromkeys(SEPARATED, _SeparatedValues))[suffix_of(path)](path, file_format)


@dataclass(frozen=True)
class _PlainLines:
    """One sentence a line."""

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
    """A JSON object, or an array, a line."""

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
    """Values that commas, tabs or other letters separate, below a line of names."""

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
            if not any(cell.strip() for cell in cells):  # at the end they are none: a spreadsheet writes what was once used
                num_empty += 1
                continue
            yield from (("",) * len(places) for _ in range(num_empty))
            num_empty = 0
            if any(cell.strip() for cell in cells[len(header) :]):
                raise DataError(
                    where=f"{self.path}: {row_name(place_in_file)}",
                    found=f"{len(cells)} fields, such as {brief(cells[-1])}",
                    expected=f"{len(header)}, as the header has",
                    remedy="Quote sentences that hold the separator; what stands behind it would be lost.",
                )
            yield tuple(cells[place] if place < len(cells) else None for place in places)

    def _names(self, header: list[str]) -> list[str]:
        return header_names(header, is_tab=self.file_format.separator == "\t")

    def _cells(self, file: IO[str]) -> Iterator[list[str]]:
        """Rows that are not empty, with quotes where it is not tabs that separate, as `read_separated` reads them; without the line that
        names the separator. DataError for a field that is never closed."""
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
    """A list of JSON objects, which is read whole."""

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
    """A file or a stream of Arrow, which stays mapped while it is read."""

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
    """Lines as rows; empty ones that no other follows are none. Memory holds one, however many these are."""
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
