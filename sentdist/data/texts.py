"""Read the sentences of a file of any size or of standard input in batches; memory holds one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentdist.data.cells import LeftOut, is_blank, is_utf8, row_name
from sentdist.data.columns import usual_column
from sentdist.data.tables import LINE, ROWS_AT_ONCE, TableFiles, check_columns, find_table
from sentdist.errors import DataError, brief, counted, listed

TextColumns = dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Sentences of a file that is not read yet.

    Args:
        columns: columns of sentences.
        id_column: column of their ids; None without ids.
        shown: further columns to read; their cells may be empty.
        num_rows: None if unknown without reading.
        left_out: collects rows without a sentence; None: they raise DataError.
    """

    files: TableFiles
    columns: tuple[str, ...]
    id_column: str | None = None
    shown: tuple[str, ...] = ()
    num_rows: int | None = None
    left_out: LeftOut | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.files.name

    def batches(self, num_rows: int) -> Iterator[TextColumns]:
        """Yield batches of `num_rows` rows (the last may be shorter): sentences, ids and shown columns as text, by column.

        Raises:
            DataError: no rows, a missing, blank or non-text sentence (naming its row), or an unreadable file.
        """
        wanted = (*self.columns, *([self.id_column] if self.id_column else []), *self.shown)
        done = num_left_out = 0
        for batch in self.files.batches(wanted, num_rows):
            for column in self.columns:
                self._check(batch[column], column, done)
            if self.id_column is not None:
                self._check_ids(batch[self.id_column], batch[self.columns[0]], done)
            kept: Mapping[str, Sequence[object]] = batch if self.left_out is None else self.left_out.kept(batch, self.columns[0], done)
            done += len(batch[wanted[0]])
            num_left_out += len(batch[wanted[0]]) - len(kept[wanted[0]])
            if kept[wanted[0]]:
                yield {column: ["" if value is None else str(value) for value in kept[column]] for column in wanted}
        if done == num_left_out:
            raise DataError(where=self.name, found="no rows", expected="at least one sentence", remedy="Check the program that wrote it.")

    def looked_through(self) -> Iterator[int]:
        """Read the whole file to find mistakes (DataError), and yield the number of rows read. Skips input that can be read only once."""
        done = 0
        for batch in self.batches(ROWS_AT_ONCE) if self.files.can_be_read_again else ():
            done += len(batch[self.columns[0]])
            yield done

    def _check(self, sentences: Sequence[object], column: str, done: int) -> None:
        for row, sentence in enumerate(sentences, start=done):
            where = f"{self.name}: {row_name(row)}, {column}"
            if is_blank(sentence) and self.left_out is None:
                remedy = "Remove or fill such rows: skipping them silently would shift all later rows."
                raise DataError(where=where, found="no sentence", expected="one with at least one visible character", remedy=remedy)
            if not is_blank(sentence) and (not isinstance(sentence, str) or "\0" in sentence or not is_utf8(sentence)):
                remedy = "Correct the row, or name another column; a list needs a row for each text (pandas: explode())."
                expected = "a sentence in UTF-8, without NUL characters, not a list"
                raise DataError(where=where, found=brief(sentence), expected=expected, remedy=remedy)

    def _check_ids(self, cells: Sequence[object], sentences: Sequence[object], done: int) -> None:
        for row, (cell, sentence) in enumerate(zip(cells, sentences, strict=True), start=done):
            if cell is None and (self.left_out is None or not is_blank(sentence)):
                expected = "an id for each sentence"
                remedy = "Fill the column, or omit --id."
                raise DataError(where=f"{self.name}: {row_name(row)}, {self.id_column}", found="no id", expected=expected, remedy=remedy)


def open_texts(
    name: str, *, columns: Sequence[str] = (), num_columns: int = 1, id_column: str | None = None, shown: Sequence[str] = ()
) -> Texts:
    """Find the sentences of a file, a folder of its parts or standard input.

    Args:
        name: a path, or "-" for standard input, a sentence a line.
        columns: may be empty if the file has exactly `num_columns` columns, or pairs by usual names.

    Raises:
        DataError: a missing, empty or unreadable file, or absent columns.
    """
    files = find_table(name)
    known, num_rows = files.shape() if files.can_be_read_again else ((LINE,), None)
    beside = [*([id_column] if id_column else []), *shown]
    chosen = tuple(columns) or (known if len(known) == num_columns else ())
    if not chosen and num_columns == 2 and all(usual := (usual_column("anchor", known), usual_column("positive", known))):
        chosen = tuple(map(str, usual))
    if len(chosen) != num_columns:
        first = usual_column("anchor", known) or usual_column("positive", known) or known[0]
        likely = [first, *(column for column in known if column != first)][:num_columns]
        raise DataError(
            where=name,
            found=f"columns {listed(known)}" if not columns else f"{counted(len(columns), 'column')} named, {', '.join(columns)}",
            expected="one that holds the sentences" if num_columns == 1 else f"{num_columns} that hold the sentences",
            remedy=f"Use {' '.join(f'--column {column}' for column in likely)}, or others.",
        )
    if not columns and any(len(column.split()) > 4 or column.endswith((".", "?", "!")) for column in chosen):
        raise DataError(
            where=name, found=f"a first line of sentences, {listed(chosen)}", expected="one that names the columns",
            remedy="Add it, or save sentences as .txt, one a line; if it does name them, use --column.",
        )  # fmt: skip
    check_columns(name, known, [*chosen, *beside])
    notes = (files.note,) if files.note else ()
    return Texts(files=files, columns=chosen, id_column=id_column, shown=tuple(shown), num_rows=num_rows, notes=notes)
