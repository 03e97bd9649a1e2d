"""Sentences in a file of any size or on standard input, read batch by batch: memory holds one batch."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, TypeVar

from sentdist.data.cells import is_utf8, row_name, with_inner_fields
from sentdist.data.left_out import LeftOut, is_blank
from sentdist.data.own.shapes import ANCHORS, POSITIVES, is_called_beside
from sentdist.data.quotes import long_fields, refuse_escaped_marks, refuse_open_quote, unquoted_cell
from sentdist.data.sources.column_names import check_columns, refuse_repeated
from sentdist.data.sources.files import read_objects
from sentdist.data.sources.separated import (
    FileFormat,
    are_in_marks,
    encoding_of,
    format_notes,
    header_names,
    said_separator,
    source_format,
)
from sentdist.data.text_errors import missing, no_rows, what_is_wanted
from sentdist.errors import DataError, brief, listed
from sentdist.reading import bounded_lines, reading, unreadable
from sentdist.table_files import (
    GZIP,
    LINES,
    OBJECTS,
    PARQUET,
    PLAIN_SUFFIX,
    SEPARATED,
    SHOWN_TABLES,
    TABLES,
    open_text,
    other_kind,
    suffix_of,
)

STDIN = "-"
ROWS_AT_ONCE = 16_384  # of what is looked through
PLAIN = ("", PLAIN_SUFFIX)  # one sentence a line; without a suffix, as a shell's <(command) is
LONGEST_LINE = 1 << 26  # letters; a file without line ends would fill the memory
MOST_WORDS = 4  # of a column's name; what is longer is a sentence
TEXTS = (*ANCHORS, *POSITIVES, "text")  # names of columns that hold texts
SENTENCE = "sentence"  # what the only column of a plain file is called here

TextColumns = dict[str, list[str]]
AnyRow = TypeVar("AnyRow")


def looks_like_a_file(argument: str) -> bool:
    """Whether an argument that may be a sentence names a file: standard input, one word with a suffix that is read here, or a file that is
    there; a word without suffix or slash is a sentence, whatever is called so."""
    if argument == STDIN or (len(argument.split()) == 1 and suffix_of(Path(argument)) in (*TABLES, PLAIN_SUFFIX)):
        return True
    place = os.path.expanduser(argument)
    return ("/" in argument or bool(Path(argument).suffix)) and os.path.exists(place) and not os.path.isdir(place)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Sentences that were found and not yet read.

    path: None is standard input. columns: where the sentences stand. id_column: where their ids stand, if asked for. num_rows: as far as
    it is known without reading. file_format: how a file of text is written. left_out: takes up rows without a sentence, which else are
    refused.
    """

    path: Path | None
    columns: tuple[str, ...]
    file_format: FileFormat = field(default_factory=FileFormat)
    id_column: str | None = None
    num_rows: int | None = None
    left_out: LeftOut | None = None

    @property
    def name(self) -> str:
        return "standard input" if self.path is None else str(self.path)

    @property
    def notes(self) -> Sequence[str]:
        """What of the file's format differs from what its suffix and UTF-8 let expect, in words."""
        return () if self.path is None else format_notes(self.file_format, self.path)

    def batches(self, num_rows: int) -> Iterator[TextColumns]:
        """Batches of `num_rows` rows, the last one shorter: for each column its texts, ids as text.

        Raises:
            DataError: no rows at all, a sentence that is missing, not a text or blank, with its row; a file that cannot be read.
        """
        wanted = (*self.columns, *([self.id_column] if self.id_column else []))
        done = 0
        with _readable(self.path):
            for batch in self._records(wanted, num_rows):
                for column in self.columns:
                    self._check(batch[column], column, done)
                if self.id_column is not None:
                    self._check_ids(batch, self.id_column, done)
                kept = batch if self.left_out is None else self.left_out.kept(batch, self.columns[0], done)
                done += len(batch[wanted[0]])
                if kept[wanted[0]]:
                    yield {column: [str(value) for value in kept[column]] for column in wanted}
        if done == (0 if self.left_out is None else len(self.left_out.rows)):
            raise no_rows(self.name)

    def looked_through(self) -> Iterator[int]:
        """Read all of it once, for its mistakes: gives out how many rows were read. Nothing of what can be read once alone.

        Raises:
            DataError: as `batches`.
        """
        done = 0
        for batch in self.batches(ROWS_AT_ONCE) if self.can_be_read_again else ():
            done += len(batch[self.columns[0]])
            yield done

    @property
    def can_be_read_again(self) -> bool:
        """Not standard input, nor a pipe."""
        return self.path is not None and self.path.is_file()

    def _records(self, wanted: Sequence[str], num_rows: int) -> Iterator[dict[str, list[object]]]:
        if self.path is not None and suffix_of(self.path) in (PARQUET, OBJECTS):
            yield from _table_batches(self.path, self.file_format, wanted, num_rows)
            return
        with _opened(self.path, self.file_format) as file:
            rows = _rows(file, self.path, self.file_format, wanted)
            while chunk := _next_rows(rows, num_rows):
                yield {column: list(values) for column, values in zip(wanted, zip(*chunk, strict=True), strict=True)}

    def _check(self, sentences: Sequence[object], column: str, done: int) -> None:
        for row, sentence in enumerate(sentences, start=done):
            if self.left_out is not None and is_blank(sentence):
                continue
            if not isinstance(sentence, str) or not sentence.strip() or "\0" in sentence or not is_utf8(sentence):
                raise DataError(
                    where=f"{self.name}: {row_name(row)}, {column}",
                    found=brief(sentence),
                    expected=what_is_wanted(sentence),
                    remedy="Drop or fill such rows: leaving them out silently would shift all rows behind them.",
                )

    def _check_ids(self, batch: dict[str, list[object]], column: str, done: int) -> None:
        for row, (cell, sentence) in enumerate(zip(batch[column], batch[self.columns[0]], strict=True), start=done):
            if cell is None and (self.left_out is None or not is_blank(sentence)):
                raise DataError(
                    where=f"{self.name}: {row_name(row)}, {column}", found="no id", expected="an id for each sentence",
                    remedy="Fill the column, or leave --id out.",
                )  # fmt: skip


def open_texts(name: str, *, columns: Sequence[str] = (), num_columns: int = 1, id_column: str | None = None) -> Texts:
    """Find the sentences of a file: plain text with one a line, or a table with `columns`, text packed by gzip, too;
    "-" is plain standard input.

    columns: may be left out where the file has exactly `num_columns`.

    Raises:
        DataError: a missing or empty file (with near names), a suffix that is not read here, columns that it does not have.
    """
    if name == STDIN:
        _check_plain("standard input", columns, num_columns, id_column)
        return Texts(path=None, columns=(SENTENCE,))
    path = Path(name).expanduser()
    if not path.exists() or path.is_dir():
        raise missing(path)
    if (kind := unreadable(path, may_be_pipe=_is_substituted(path))) is not None:
        raise DataError(where=name, found=kind, expected="a file of sentences, or -", remedy="Pipe into - what another program writes.")
    if path.is_file() and path.stat().st_size == 0:
        raise no_rows(name)
    if suffix_of(path) in PLAIN:
        _check_plain(name, columns, num_columns, id_column)
        return Texts(path=path, columns=(SENTENCE,), file_format=FileFormat(encoding=encoding_of(name, path)))
    if suffix_of(path) not in TABLES:
        what_is_packed = "; what is packed so, a sentence a line: zcat FILE | sentdist … -" if suffix_of(path) == GZIP else ""
        raise DataError(
            where=name, found=f"suffix {path.suffix}", expected=f"one of .txt, {SHOWN_TABLES}",
            remedy=f"{other_kind(path)}{what_is_packed}.",
        )  # fmt: skip
    file_format = source_format(name, path)
    with _readable(path):
        known, num_rows = _shape(path, file_format)
    if suffix_of(path) in SEPARATED and not columns:
        if len(known) == 1:
            _check_only_column(name, path, known[0])
        elif len(known) == num_columns:
            _check_named(name, known)
    chosen = tuple(columns) or (known if len(known) == num_columns else ())
    if len(chosen) != num_columns:
        raise DataError(
            where=name,
            found=f"columns {listed(known)}" if not columns else f"{len(columns)} names of columns: {', '.join(columns)}",
            expected="one that holds the sentences" if num_columns == 1 else f"{num_columns} that hold the sentences",
            remedy=f"Say {' '.join(f'--column {column}' for column in _likely(known)[:num_columns])}, or others.",
        )
    check_columns(name, known, [*chosen, *([id_column] if id_column else [])])
    return Texts(path=path, columns=chosen, file_format=file_format, id_column=id_column, num_rows=num_rows)


def _likely(known: Sequence[str]) -> list[str]:
    """Columns, those first that are called as texts usually are, those last that are called as names of rows, groups or splits."""
    return sorted(known, key=lambda name: (is_called_beside(name), name.casefold() not in TEXTS))


def _check_only_column(name: str, path: Path, header: str) -> None:
    """Refuse what is another number of columns, separated otherwise, and a first line that is a sentence and would be lost."""
    mark = next((mark for mark in ";\t|," if mark in header), None)
    if mark is not None or _is_sentence(header):
        separator = "tabs" if suffix_of(path) == ".tsv" else "commas"
        raise DataError(
            where=name,
            found=f"one column, {brief(header)}",
            expected=f"a first line that names the columns, separated by {separator}",
            remedy="Save it so, or as .txt with a sentence a line; if that is the column's name, say --column.",
        )


def _check_named(name: str, known: Sequence[str]) -> None:
    """Refuse a first line of sentences, which would be lost, where nobody has said which columns are meant."""
    if (sentence := next(filter(_is_sentence, known), None)) is not None:
        raise DataError(
            where=name,
            found=f"a first line of sentences, such as {brief(sentence)}",
            expected="one that names the columns",
            remedy="Put such a line above it; if these are names, say --column.",
        )


def _is_sentence(header: str) -> bool:
    return len(header.split()) > MOST_WORDS or header.strip()[-1:] in tuple(".?!")


def _shape(path: Path, file_format: FileFormat) -> tuple[tuple[str, ...], int | None]:
    """Columns, and rows where the file says so at its beginning."""
    if suffix_of(path) == OBJECTS:
        objects = read_objects(path, encoding=file_format.encoding or "utf-8")
        return tuple(objects.column_names), objects.num_rows
    if suffix_of(path) == PARQUET:
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as table:
            if not table.metadata.num_rows:
                raise no_rows(str(path))
            return tuple(table.schema_arrow.names), table.metadata.num_rows
    with _opened(path, file_format) as file:
        if suffix_of(path) == LINES:
            filled = filter(lambda line: line[1].strip(), enumerate(bounded_lines(file, longest=LONGEST_LINE), start=1))
            first = next(((number, line) for number, line in filled), None)
            if first is None:
                raise no_rows(str(path))
            return tuple(_json_row(first[1], first[0], str(path))), None
        header = _next_rows(filter(None, _separated_rows(file, path, file_format)), 1)
        if not header:
            raise no_rows(str(path))
        known = header_names(header[0], is_tab=file_format.separator == "\t")
        refuse_repeated(str(path), known)
        return tuple(known), None


def _rows(file: IO[str], path: Path | None, file_format: FileFormat, wanted: Sequence[str]) -> Iterator[tuple[object, ...]]:
    if path is None or suffix_of(path) in PLAIN:
        yield from _without_empty_end(line.rstrip("\r\n") for line in bounded_lines(file, longest=LONGEST_LINE))
    elif suffix_of(path) == LINES:
        for number, line in enumerate(bounded_lines(file, longest=LONGEST_LINE), start=1):
            if line.strip():
                row = _json_row(line, number, str(path))
                yield tuple(row.get(column) for column in wanted)
    else:
        reader = filter(None, _separated_rows(file, path, file_format))
        header = header_names(next(reader), is_tab=file_format.separator == "\t")
        places = [header.index(column) for column in wanted]
        for place_in_file, cells in enumerate(reader):
            if any(cell.strip() for cell in cells[len(header) :]):
                raise DataError(
                    where=f"{path}: {row_name(place_in_file)}",
                    found=f"{len(cells)} fields, such as {brief(cells[-1])}",
                    expected=f"{len(header)}, as the header has",
                    remedy="Quote sentences that hold the separator; what stands behind it would be lost.",
                )
            yield tuple(cells[place] if place < len(cells) else None for place in places)


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


def _separated_rows(file: IO[str], path: Path, file_format: FileFormat) -> Iterator[list[str]]:
    """The rows of separated values, with quotes where it is not tabs that separate, as `read_separated` reads them; without the line that
    names the separator. DataError for a field that is never closed."""
    separator = file_format.separator or ","
    begin = file.readline()
    while not begin.strip("\r\n") and begin:
        begin = file.readline()
    lines = file if said_separator(begin) is not None else chain([begin], file)
    if separator == "\t" and not are_in_marks(begin.rstrip("\r\n").split("\t")):
        for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield [unquoted_cell(cell) for cell in row]
        return
    is_looked_through = has_backslash = False
    for row in csv.reader(lines, delimiter=separator):
        if not is_looked_through and any("\n" in cell or "\r" in cell for cell in row):
            with _opened(path, file_format) as again:
                refuse_open_quote(str(path), again, separator)
            is_looked_through = True
        if not has_backslash and any("\\" in cell for cell in row):
            with _opened(path, file_format) as again:
                refuse_escaped_marks(str(path), again, separator)
            has_backslash = True
        yield row


def _next_rows(rows: Iterator[AnyRow], number: int) -> list[AnyRow]:
    with long_fields(LONGEST_LINE):
        return list(islice(rows, number))


def _json_row(line: str, number: int, name: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise DataError(where=f"{name}: line {number}", found=line.strip()[:60], expected="a JSON object", remedy="Correct that line.")
    return with_inner_fields(row)


def _table_batches(path: Path, file_format: FileFormat, wanted: Sequence[str], num_rows: int) -> Iterator[dict[str, list[object]]]:
    import pyarrow.parquet as pq

    columns = list(dict.fromkeys(wanted))
    if suffix_of(path) == OBJECTS:
        table = read_objects(path, encoding=file_format.encoding or "utf-8").select(columns)
        yield from ({column: batch[column].to_pylist() for column in wanted} for batch in table.to_batches(num_rows))
        return
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=num_rows, columns=columns):
            yield {column: batch.column(column).to_pylist() for column in wanted}


@contextmanager
def _opened(path: Path | None, file_format: FileFormat) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdin
        return
    with open_text(path, encoding=file_format.encoding, newline="" if suffix_of(path) in SEPARATED else None) as file:
        yield file


def _is_substituted(path: Path) -> bool:
    """Whether a path is what a shell makes of <(command): a pipe with a writer,
    where a named pipe may have none and is waited for for ever."""
    return str(path).startswith(("/dev/fd/", "/proc/self/fd/"))


@contextmanager
def _readable(path: Path | None) -> Iterator[None]:
    with reading(
        path, expected="UTF-8 text, or a table of the kind that its suffix says", may_be_pipe=path is not None and _is_substituted(path)
    ):
        yield


def _check_plain(name: str, columns: Sequence[str], num_columns: int, id_column: str | None) -> None:
    if columns or id_column or num_columns > 1:
        asked = ", ".join([*columns, *([id_column] if id_column else [])]) or f"{num_columns} columns"
        raise DataError(
            where=name,
            found=f"plain text, and {asked} asked for",
            expected=f"a table with named columns: {SHOWN_TABLES}",
            remedy="Leave the names of columns out, or give such a file.",
        )
