"""From rows of sentences to a corpus: which rows are kept, which sentences are the same, which id each one gets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentdist.data.cells import row_name
from sentdist.data.corpus import SENTENCES_PER_BATCH, VALUES, write_corpus
from sentdist.data.seeded_order import shuffled
from sentdist.data.sources.column_names import check_columns
from sentdist.errors import DataError

LONG_WORDS = 256  # a sentence of more words is cut by every encoder at hand (most read 512 tokens, many recipes 75)
ROWS_PER_BLOCK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CorpusFacts:
    """What was built, and what was left out on the way.

    num_rows, num_sentences: as in the corpus. num_dropped_duplicates: rows equal to an earlier row in every column;
    num_repeating: rows kept that hold one sentence twice (a positive equal to its anchor teaches little,
    a negative equal to its positive teaches wrong). num_over_long: unique sentences of more than 256 words. mean_words, max_words:
    whitespace-separated words a unique sentence.
    """

    num_rows: int
    num_sentences: int
    num_dropped_duplicates: int
    num_repeating: int
    num_over_long: int
    mean_words: float
    max_words: int


def build_corpus(
    rows: pa.Table,
    *,
    columns: tuple[str, ...],
    folder: Path,
    limit: int | None = None,
    seed: int = 0,
    add_reversed: bool = False,
    num_positives: int = 1,
    values: tuple[str, ...] = (),
    where: str = "corpus",
) -> CorpusFacts:
    """Write the corpus of `rows` into `folder` (made if absent) and say what is in it.

    columns: the source's names for anchor, `num_positives` positives, and negatives.
    values: of its columns `label` and `relation`, those that rows keep;
    rows that differ in a value are not the same. limit: how many of the distinct rows to keep, drawn with `seed`, order kept.
    add_reversed: append (positive, anchor[, negative]) for every row that is kept. where: what errors call it.
    Sentences are equal when their strings are; ids follow the order of first appearance, row by row. Nulls and whitespace count as empty.

    Two passes over `rows`, which may be a memory-mapped table: nothing holds all text.
    Peak memory is about 80 bytes a cell (row × column; measured), among them 16 of digest and 24 for sorting,
    so 100 million distinct sentences in 50 million pairs take about 8 GB.
    Raises DataError for absent or non-text columns, no rows, an empty sentence (naming row and column).
    """
    _check(rows, columns, values, limit, where)
    digests_RC2 = _digests(rows, columns, where)
    identity_RC = same_strings(digests_RC2)
    del digests_RC2
    values_VR = [rows[name].combine_chunks().to_numpy(zero_copy_only=False).astype(VALUES[name]) for name in values]
    distinct_R = np.flatnonzero(first_of_each_row(_with_values(identity_RC, values_VR)))
    kept_R = _limited(distinct_R, limit, seed)
    ids_RC, first_cells = number_by_appearance(identity_RC[kept_R])
    del identity_RC
    ids_CR = _reversed_too(ids_RC.T) if add_reversed else ids_RC.T
    kept_values = {name: column[kept_R] for name, column in zip(values, values_VR, strict=True)}
    lengths: list[np.ndarray] = []
    folder.mkdir(parents=True, exist_ok=True)
    narrow = np.int32 if len(first_cells) < 2**31 else np.int64
    cells = kept_R[first_cells // len(columns)] * len(columns) + first_cells % len(columns)
    write_corpus(
        folder,
        ids_CR=np.ascontiguousarray(ids_CR, dtype=narrow),
        sentences=_sentences(rows, columns, cells, lengths),
        num_positives=num_positives,
        values=kept_values,
    )
    words_S = np.concatenate(lengths)
    return CorpusFacts(
        num_rows=ids_CR.shape[1],
        num_sentences=len(first_cells),
        num_dropped_duplicates=rows.num_rows - len(distinct_R),
        num_repeating=int(np.count_nonzero(np.diff(np.sort(ids_CR, axis=0), axis=0).min(axis=0, initial=1) == 0)),
        num_over_long=int(np.count_nonzero(words_S > LONG_WORDS)),
        mean_words=float(words_S.mean()),
        max_words=int(words_S.max()),
    )


def same_strings(digests: np.ndarray) -> np.ndarray:
    """Return for each cell the number of its string: (…, 2) uint64 digests → (…) int64, equal where and only where the strings are.

    Sorting goes by the first 64 bits; the other 64 tell whether two strings happen to share them (expected 0.0003 times among 10⁸ strings),
    in which case both halves distinguish those cells.
    """
    first, second = digests[..., 0].reshape(-1), digests[..., 1].reshape(-1)
    _, representative, number = np.unique(first, return_index=True, return_inverse=True)
    other = second != second[representative][number]
    if other.any():
        _, number = np.unique(np.stack([first, second], axis=1), axis=0, return_inverse=True)
    return number.reshape(digests.shape[:-1]).astype(np.int64)


def first_of_each_row(identity_RC: np.ndarray) -> np.ndarray:
    """Return (R,) bool: no earlier row is equal in every column."""
    keys = identity_RC[:, 0]
    for column in identity_RC.T[1:]:
        _, keys = np.unique(keys * (int(column.max(initial=0)) + 1) + column, return_inverse=True)  # below 2⁶³ for 3 · 10⁹ strings
    _, representatives = np.unique(keys, return_index=True)
    first = np.zeros(len(keys), dtype=bool)
    first[representatives] = True
    return first


def number_by_appearance(identity_RC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Renumber strings from 0 in the order in which they appear, row by row.

    Returns the ids (R, C) int64 and, for each id, the cell (row × C + column) where it appears first, (S,) int64, ascending.
    """
    _, first_cells, compact = np.unique(identity_RC.reshape(-1), return_index=True, return_inverse=True)
    by_appearance = np.argsort(first_cells)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(by_appearance))
    return rank[compact].reshape(identity_RC.shape), first_cells[by_appearance]


def _with_values(identity_RC: np.ndarray, values_VR: list[np.ndarray]) -> np.ndarray:
    """(R, C + V): the values of a row beside the numbers of its strings."""
    numbers = [np.unique(column, return_inverse=True)[1].astype(np.int64) for column in values_VR]
    return np.column_stack([identity_RC, *numbers]) if numbers else identity_RC


def _limited(distinct_R: np.ndarray, limit: int | None, seed: int) -> np.ndarray:
    """Return at most `limit` of the row numbers, in their order."""
    if limit is None or limit >= len(distinct_R):
        return distinct_R
    return np.sort(distinct_R[shuffled(len(distinct_R), seed=seed, stream="limit")[:limit]])


def _check(rows: pa.Table, columns: tuple[str, ...], values: tuple[str, ...], limit: int | None, where: str) -> None:
    if not columns:
        raise DataError(where=where, found="0 columns", expected="anchor and positive", remedy="Name the columns in the recipe.")
    if limit is not None and limit < 1:
        raise DataError(where=where, found=f"limit {limit}", expected="at least one row", remedy="Raise the limit or leave it out.")
    check_columns(where, rows.column_names, (*columns, *values))
    for column in columns:
        kind = rows.schema.field(column).type
        if not (pa.types.is_large_string(kind) or pa.types.is_string(kind)):
            raise DataError(where=where, found=f"column {column} of type {kind}", expected="text", remedy="Name a column of sentences.")
    if rows.num_rows == 0:
        raise DataError(where=where, found="no rows", expected="at least one", remedy="Check the split and the limit.")


def _digests(rows: pa.Table, columns: tuple[str, ...], where: str) -> np.ndarray:
    """Return (R, C, 2) uint64, a 128-bit BLAKE2b of each cell."""
    digests = np.zeros((rows.num_rows, len(columns), 2), dtype=np.uint64)
    for first, block in _blocks(rows, columns):
        span = slice(first, first + block.num_rows)
        for place, column in enumerate(columns):
            cells = pc.fill_null(block[column].combine_chunks(), "")
            blank = pc.equal(pc.utf8_trim_whitespace(cells), "").to_numpy(zero_copy_only=False)
            if blank.any():
                raise DataError(
                    where=where,
                    found=f"an empty sentence in {row_name(first + int(blank.argmax()))}, column {column}",
                    expected="text in every cell",
                    remedy="Correct the row, or leave it out of the file.",
                )
            digests[span, place] = _digests_of(cells)
    return digests


def _digests_of(cells: pa.Array) -> np.ndarray:
    """Return (K, 2) uint64 for K strings, hashing each distinct one once (premises of NLI come in threes)."""
    encoded = cells.dictionary_encode()
    raw = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in encoded.dictionary.to_pylist())
    return np.frombuffer(raw, dtype="<u8").reshape(-1, 2)[encoded.indices.to_numpy()]


def _blocks(rows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[int, pa.Table]]:
    wanted = rows.select(list(dict.fromkeys(columns)))
    for first in range(0, rows.num_rows, ROWS_PER_BLOCK):
        yield first, wanted.slice(first, ROWS_PER_BLOCK)


def _sentences(rows: pa.Table, columns: tuple[str, ...], cells: np.ndarray, lengths: list[np.ndarray]) -> Iterator[pa.Array]:
    """Yield the strings of the given cells (row × C + column, ascending) in blocks of equal size;
    append their numbers of words to `lengths`."""
    pending = pa.array([], pa.large_string())
    for first, block in _blocks(rows, columns):
        low, high = np.searchsorted(cells, [first * len(columns), (first + block.num_rows) * len(columns)])
        if low == high:
            continue
        local = cells[low:high] - first * len(columns)
        joined = pa.concat_arrays([block[column].combine_chunks().cast(pa.large_string()) for column in columns])
        found = joined.take(pa.array(local % len(columns) * block.num_rows + local // len(columns)))
        lengths.append(pc.list_value_length(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(found))).to_numpy())
        pending = pa.concat_arrays([pending, found])
        while len(pending) >= SENTENCES_PER_BATCH:
            yield pending.slice(0, SENTENCES_PER_BATCH)
            pending = pending.slice(SENTENCES_PER_BATCH)
    if len(pending):
        yield pending


def _reversed_too(ids_CR: np.ndarray) -> np.ndarray:
    """Return (C, ≤ 2R): the rows, then those with anchor and positive exchanged that are not among the rows already."""
    if len(ids_CR) < 2:
        raise DataError(where="corpus", found="one column", expected="anchor and positive to exchange", remedy="Leave add_reversed out.")
    both = np.concatenate([ids_CR, ids_CR[[1, 0, *range(2, len(ids_CR))]]], axis=1)
    return both[:, first_of_each_row(both.T)]
