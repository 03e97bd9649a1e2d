"""Sentences in a file of any size or on standard input, read batch by batch: memory holds one batch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sentdist.data.cells import ROW_FOR_EACH, is_utf8, row_name
from sentdist.data.left_out import LeftOut, OnlyNothing, is_blank
from sentdist.data.own.file_format import NOTHING
from sentdist.data.own.usual_names import ANCHORS, POSITIVES, is_called_beside
from sentdist.data.sources.column_names import check_columns
from sentdist.data.sources.separated import FileFormat, encoding_of, format_notes, source_format
from sentdist.data.text_errors import missing, no_rows, what_is_wanted
from sentdist.data.text_rows import PLAIN, SENTENCE, row_reader
from sentdist.errors import DataError, brief, counted, listed
from sentdist.reading import reading, unreadable
from sentdist.table_files import GZIP, READ, SEPARATED, SHOWN_READ, SHOWN_TABLES, is_called_a_file, open_text, other_kind, suffix_of

STDIN = "-"
LOOKED_AT = 1 << 16  # letters at the beginning of a file
NAMED_ROWS = 5  # that lack a sentence
LONGEST_NOTHING = 2 * max(map(len, NOTHING))  # letters, with blanks around
ROWS_AT_ONCE = 16_384  # of what is looked through
MOST_WORDS = 4  # of a column's name; what is longer is a sentence
TEXTS = (*ANCHORS, *POSITIVES, "text")  # names of columns that hold texts

TextColumns = dict[str, list[str]]


def looks_like_a_file(argument: str) -> bool:
    """Whether an argument that may be a sentence names a file: standard input, one word with a suffix that is read here, or a file that is
    there; a word without suffix or slash is a sentence, whatever is called so."""
    if argument == STDIN or (len(argument.split()) == 1 and is_called_a_file(Path(argument))):
        return True
    place = os.path.expanduser(argument)
    return ("/" in argument or bool(Path(argument).suffix)) and os.path.exists(place) and not os.path.isdir(place)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Sentences that were found and not yet read.

    path: None is standard input. columns: where the sentences stand. id_column: where their ids stand, if asked for. shown: columns that
    are read beside them, whose cells may be empty. others: what else the file has. num_rows: as far as it is known without reading.
    file_format: how a file of text is written. left_out: takes up rows without a sentence, which else are refused. or_else: what else can
    be done about these. nothing: takes up rows with a word for no value, which are read.
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
        """What of the file's format differs from what its suffix and UTF-8 let expect, in words."""
        return () if self.path is None else format_notes(self.file_format, self.path)

    def batches(self, num_rows: int) -> Iterator[TextColumns]:
        """Batches of `num_rows` rows, the last one shorter: for each column its texts, ids and what is shown as text.

        Raises:
            DataError: no rows at all, a sentence that is missing, not a text or blank, with its row; a file that cannot be read.
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
                    else "Drop or correct such rows: leaving them out silently would shift all rows behind them.",
                )
            if len(sentence) <= LONGEST_NOTHING and sentence.strip() in NOTHING:
                self.nothing.rows[row] = sentence.strip()

    def _blank(self, cells: Mapping[int, object], column: str) -> DataError:
        """The error for rows without a sentence, of which more may follow. cells: what is there instead, by row."""
        rows = list(cells)
        named = ", ".join(str(row + 1) for row in rows[:NAMED_ROWS]) + (
            f" and {len(rows) - NAMED_ROWS:,} more" if rows[NAMED_ROWS:] else ""
        )
        return DataError(
            where=f"{self.name}: {f'rows {named}' if rows[1:] else row_name(rows[0])}, {column}",
            found="no sentences" if rows[1:] else brief(cells[rows[0]]),
            expected="a sentence with at least one visible character",
            remedy=f"Drop or fill such rows: leaving them out silently would shift all rows behind them.{self.or_else}",
        )

    def _check_ids(self, batch: dict[str, list[object]], column: str, done: int) -> None:
        for row, (cell, sentence) in enumerate(zip(batch[column], batch[self.columns[0]], strict=True), start=done):
            if cell is None and (self.left_out is None or not is_blank(sentence)):
                raise DataError(
                    where=f"{self.name}: {row_name(row)}, {column}", found="no id", expected="an id for each sentence",
                    remedy="Fill the column, or leave --id out.",
                )  # fmt: skip


def open_texts(
    name: str, *, columns: Sequence[str] = (), num_columns: int = 1, id_column: str | None = None, shown: Sequence[str] = ()
) -> Texts:
    """Find the sentences of a file: plain text with one a line, or a table with `columns`, text packed by gzip, too;
    "-" is plain standard input.

    columns: may be left out where the file has exactly `num_columns`.

    Raises:
        DataError: a missing or empty file (with near names), a suffix that is not read here, columns that it does not have.
    """
    beside = [*([id_column] if id_column else []), *shown]
    if name == STDIN:
        _check_plain("standard input", beside, columns, num_columns)
        return Texts(path=None, columns=(SENTENCE,))
    path = Path(name).expanduser()
    if not path.exists() or path.is_dir():
        raise missing(path)
    if (kind := unreadable(path, may_be_pipe=_is_substituted(path))) is not None:
        raise DataError(where=name, found=kind, expected="a file of sentences, or -", remedy="Pipe into - what another program writes.")
    if path.is_file() and path.stat().st_size == 0:
        raise no_rows(name)
    if suffix_of(path) in PLAIN:
        _check_plain(name, beside, columns, num_columns)
        encoding = encoding_of(name, path)
        _check_no_table(name, path, encoding)
        return Texts(path=path, columns=(SENTENCE,), file_format=FileFormat(encoding=encoding))
    if suffix_of(path) not in READ:
        what_is_packed = "; what is packed so, a sentence a line: zcat FILE | sentdist … -" if suffix_of(path) == GZIP else ""
        raise DataError(
            where=name, found=f"suffix {path.suffix}", expected=f"one of {SHOWN_READ}",
            remedy=f"{other_kind(path)}{what_is_packed}.",
        )  # fmt: skip
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
            remedy=f"Say {' '.join(f'--column {column}' for column in _likely(known)[:num_columns])}, or others.",
        )
    check_columns(name, known, [*chosen, *beside])
    others = tuple(column for column in known if column and column not in (*chosen, *beside))
    return Texts(
        path=path, columns=chosen, file_format=file_format, id_column=id_column, shown=tuple(shown), others=others, num_rows=num_rows
    )


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


def _check_no_table(name: str, path: Path, encoding: str) -> None:
    """Refuse a table that is called .txt, as spreadsheets call one parted by tabs: each row would be a sentence."""
    if not path.is_file():
        return
    with _readable(path), open_text(path, encoding=encoding) as file:
        lines = [line for line in file.read(LOOKED_AT).splitlines()[:-1] if line.strip()]
    tabs = {line.count("\t") for line in lines}
    if len(lines) > 1 and len(tabs) == 1 and (number := tabs.pop()):
        raise DataError(
            where=name,
            found=f"{counted(number + 1, 'column')} parted by tabs",
            expected="a sentence a line",
            remedy=f"Call the file {path.stem}.tsv and name its column (--column), or take the tabs out.",
        )


def _is_substituted(path: Path) -> bool:
    """Whether a path is what a shell makes of <(command): a pipe with a writer,
    where a named pipe may have none and is waited for forever."""
    return str(path).startswith(("/dev/fd/", "/proc/self/fd/"))


@contextmanager
def _readable(path: Path | None) -> Iterator[None]:
    with reading(
        path, expected="UTF-8 text, or a table of the kind that its suffix says", may_be_pipe=path is not None and _is_substituted(path)
    ):
        yield


def _check_plain(name: str, beside: Sequence[str], columns: Sequence[str], num_columns: int) -> None:
    """Refuse to look for columns, of texts or beside them, where there are none."""
    if columns or beside or num_columns > 1:
        asked = ", ".join([*columns, *beside]) or f"{num_columns} columns"
        raise DataError(
            where=name,
            found=f"plain text, and {asked} asked for",
            expected=f"a table with named columns: {SHOWN_TABLES}",
            remedy="Leave the names of columns out, or give such a file.",
        )
