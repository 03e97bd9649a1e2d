"""Candidates to re-rank as mteb has them: a row a query, with lists of its positives and its negatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sentdist.data.cells import GROUP, row_name
from sentdist.errors import DataError, brief

if TYPE_CHECKING:
    import pyarrow as pa

QUERY, POSITIVE, NEGATIVE = "query", "positive", "negative"
ROW_COLUMNS = ("query_id", QUERY, "document_id", "document", "relevance")  # of a table with a row a candidate


def columns_as_rows(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that a table with these has where it is read as a row a candidate."""
    return (*columns, *(column for column in ROW_COLUMNS if column not in columns and _are_lists(columns)))


def as_rows(name: str, table: pa.Table) -> pa.Table:
    """A table with lists as a row a candidate; any other as it is. Each row is a query of its own, its group that of its candidates.
    Negatives come first: an encoder that cannot distinguish candidates keeps the order of rows, and must not win by it.

    Raises:
        DataError: a candidate that is no text.
    """
    import pyarrow as pa

    if not _are_lists(table.column_names):
        return table
    columns = (*ROW_COLUMNS, *([GROUP] if GROUP in table.column_names else []))
    rows = [(*row, given.get(GROUP)) for number, given in enumerate(table.to_pylist()) for row in _candidates(name, number, given)]
    return pa.table({column: [row[place] for row in rows] for place, column in enumerate(columns)})


def _are_lists(columns: Sequence[str]) -> bool:
    return {QUERY, POSITIVE, NEGATIVE} <= set(columns) and "document" not in columns


def _candidates(name: str, number: int, given: dict[str, object]) -> Iterator[tuple[object, ...]]:
    place = 0
    for column, relevance in ((NEGATIVE, 0), (POSITIVE, 1)):
        found = given[column]
        for text in found if isinstance(found, list) else () if found in (None, "") else (found,):
            if not isinstance(text, str):
                raise DataError(
                    where=f"{name}: {row_name(number)}, {column}", found=brief(text), expected="a text, or a list of texts",
                    remedy="Put the texts themselves there.",
                )  # fmt: skip
            yield str(number), given[QUERY], f"{number}-{place}", text, relevance
            place += 1
