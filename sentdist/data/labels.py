"""Texts, or pairs of texts, with a label each, checked row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.cells import groups_in, number_in, row_name, some_text_in, text_in
from sentdist.data.sources.column_names import check_columns
from sentdist.data.sources.files import WHOLE
from sentdist.data.sources.pinned import read_source
from sentdist.errors import DataError, brief

if TYPE_CHECKING:
    import pyarrow as pa

EMPTY = "."  # what SentEval encodes where a text has no words


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """R labelled rows. texts: one tuple of R texts for each text column, runs of spaces made one, EMPTY for a text without words.

    labels: as text. splits: of each row, "" where the source has none. num_empty: texts that stood empty. groups: what each row belongs to,
    "" for nothing; () where the source does not say.
    """

    texts: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    splits: tuple[str, ...]
    num_empty: int
    groups: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def rows_of(self, split: str) -> list[int]:
        """The rows of a split, in the order of the file."""
        return [row for row, name in enumerate(self.splits) if name == split]


def read_labelled(
    name: str,
    *,
    columns: Sequence[str] = ("text",),
    label: str = "label",
    splits: Sequence[str] | None = None,
    may_be_empty: bool = True,
    data_root: Path | None = None,
    hub_revision: str | None = None,
) -> Labelled:
    """Return the rows of a source, or those of some splits in the order of the file; one without splits is its train.

    Raises:
        DataError: absent columns, a row without a label, a text that is no text (or, unless it may be, empty), none of the rows asked for.
    """
    table = read_source(name, data_root=data_root, hub_revision=hub_revision)
    if splits is not None and set(splits) == {WHOLE} and "split" not in table.column_names:
        splits = None
    check_columns(name, table.column_names, [*columns, label, *(["split"] if splits is not None else [])], may_name=False)
    parts = [str(part) for part in table["split"].to_pylist()] if "split" in table.column_names else [""] * table.num_rows
    kept = [row for row, part in enumerate(parts) if splits is None or part in splits]
    if not kept:
        raise DataError(
            where=name,
            found=f"no rows in {', '.join(splits or ())}",
            expected="rows of these splits",
            remedy="Name splits that the file has.",
        )
    values = table[label].to_pylist()
    for row in kept:
        if values[row] is None or values[row] == "":
            raise DataError(
                where=name, found=f"no {label} in {row_name(row)}", expected="a label in every row", remedy="Complete or drop the row."
            )
    texts = [_texts_of(name, table, column, kept, text_in if may_be_empty else some_text_in) for column in columns]
    return Labelled(
        texts=tuple(tuple(text or EMPTY for text in column) for column in texts),
        labels=tuple(str(values[row]) for row in kept),
        splits=tuple(parts[row] for row in kept),
        num_empty=sum(not text for column in texts for text in column),
        groups=groups_in(table, kept),
    )


def truths_of(rows: Labelled, *, where: str) -> tuple[int, ...]:
    """Labels that say yes or no, as 1 and 0.

    Raises:
        DataError: a label that is neither.
    """
    found = [number_in(label) for label in rows.labels]
    for row, (number, label) in enumerate(zip(found, rows.labels, strict=True)):
        if number not in (0.0, 1.0):
            raise DataError(
                where=where, found=f"label {brief(label)} in {row_name(row)} of the {rows.num_rows} that are read",
                expected="1 or 0, true or false",
                remedy="Correct the labels.",
            )  # fmt: skip
    return tuple(int(number == 1.0) for number in found)


def read_texts(
    name: str, *, columns: Sequence[str], split: str | None = None, data_root: Path | None = None, hub_revision: str | None = None
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The texts of some columns of a source, column by column; and what each row belongs to, () where the source does not say.

    Raises:
        DataError: absent columns or split, a source without rows, a text that is none, or without a word.
    """
    table = read_source(name, split=split, data_root=data_root, hub_revision=hub_revision)
    check_columns(name, table.column_names, columns, may_name=False)
    if not table.num_rows:
        raise DataError(where=name, found="no rows", expected=f"rows with {', '.join(columns)}", remedy="Complete the source.")
    rows = range(table.num_rows)
    return tuple(tuple(_texts_of(name, table, column, rows, some_text_in)) for column in columns), groups_in(table, rows)


def _texts_of(name: str, table: pa.Table, column: str, rows: Sequence[int], checked: Callable[..., str]) -> list[str]:
    """Runs of spaces are made one."""
    cells = table[column].to_pylist()
    return [" ".join(checked(cells[row], where=name, row=row, column=column).split()) for row in rows]
