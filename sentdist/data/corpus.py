"""Build, write and memory-map a training corpus: unique sentences with ids, and rows as ids and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentdist.data.cells import row_name
from sentdist.data.sampler import drawn_rows
from sentdist.data.tables import check_columns
from sentdist.errors import DataError
from sentdist.files import drop_remedy, reading

SENTENCES = "sentences.arrow"
ROWS = "rows.arrow"
LABEL = "label"  # (R,) float32: graded label of a pair
RELATION = "relation"  # (R,) int32: relation of anchor and positive
EXPECTED = f"a corpus ({SENTENCES}, {ROWS})"
VALUES = {LABEL: np.dtype(np.float32), RELATION: np.dtype(np.int32)}
SENTENCES_PER_BATCH = 1 << 16


@dataclass(frozen=True, kw_only=True)
class OpenedCorpus:
    """An opened corpus: R rows of C columns over S unique sentences.

    Args:
        ids: (C, R) int32 or int64 sentence ids, a read-only view of the mapped file: workers on one host share its pages.
        labels, relations: (R,) values of the rows, also mapped; None if absent.
    """

    folder: Path
    column_names: tuple[str, ...]
    ids: np.ndarray
    labels: np.ndarray | None
    relations: np.ndarray | None
    _batches: tuple[pa.StringArray, ...]
    _first_ids: np.ndarray  # (batches + 1,) id of each batch's first sentence

    @classmethod
    def open(cls, folder: Path) -> OpenedCorpus:
        """Map the two files of a corpus folder; raise DataError if one is absent or damaged."""
        rows, sentences = _mapped(folder / ROWS), _mapped(folder / SENTENCES)
        if rows.num_record_batches != 1 or sentences.schema.names != ["sentence"]:
            raise _damaged(folder, "files that are not a corpus")
        with reading(folder / ROWS, expected=EXPECTED, remedy=drop_remedy(folder)):  # a block is read only on access
            table = rows.get_batch(0)
            table.validate(full=True)
        with reading(folder / SENTENCES, expected=EXPECTED, remedy=drop_remedy(folder)):
            blocks = [sentences.get_batch(number) for number in range(sentences.num_record_batches)]
        values = {name: table[name].to_numpy(zero_copy_only=True) for name in VALUES if name in table.schema.names}
        columns = [name for name in table.schema.names if name not in VALUES]
        batches = tuple(block.column(0) for block in blocks)
        return cls(
            folder=folder,
            column_names=tuple(columns),
            ids=_stacked([table[name].to_numpy(zero_copy_only=True) for name in columns]),
            labels=values.get(LABEL),
            relations=values.get(RELATION),
            _batches=batches,
            _first_ids=np.cumsum([0, *(len(batch) for batch in batches)]),
        )

    @property
    def num_rows(self) -> int:
        return int(self.ids.shape[1])

    @property
    def num_sentences(self) -> int:
        return int(self._first_ids[-1])

    def sentences(self, ids: np.ndarray) -> list[str]:
        """Return the sentences of the ids, in their order; raise DataError for an id outside 0 … S − 1."""
        remedy = "The rows or the bank belong to another corpus: build it again."
        wanted = checked_ids(ids, self.num_sentences, where=str(self.folder), remedy=remedy)
        batch_numbers = np.searchsorted(self._first_ids, wanted, side="right") - 1
        found: list[str] = [""] * len(wanted)
        for number in np.unique(batch_numbers):
            places = np.flatnonzero(batch_numbers == number)
            texts = self._batches[number].take(pa.array(wanted[places] - self._first_ids[number])).to_pylist()
            for place, text in zip(places.tolist(), texts, strict=True):
                found[place] = text
        return found

    def sentence_blocks(self) -> Iterator[list[str]]:
        """Yield all sentences in the order of their ids, one block at a time."""
        for batch in self._batches:
            yield batch.to_pylist()


def checked_ids(ids: np.ndarray, num_sentences: int, *, where: str, remedy: str) -> np.ndarray:
    """Return sentence ids of any shape flattened to (K,) int64; raise DataError for one outside 0 … num_sentences − 1."""
    wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
    if wanted.size and not (wanted.min() >= 0 and wanted.max() < num_sentences):
        found = f"sentence ids from {wanted.min()} to {wanted.max()}"
        raise DataError(where=where, found=found, expected=f"0 to {num_sentences - 1}", remedy=remedy)
    return wanted


def roles(num_columns: int, *, num_positives: int = 1) -> tuple[str, ...]:
    """Return the names of a row's sentences: anchor, positive[_1 …], negative[_1 …]."""
    num_negatives = max(0, num_columns - 1 - num_positives)
    return ("anchor", *_numbered("positive", num_positives), *_numbered("negative", num_negatives))[:num_columns]


def write_corpus(
    folder: Path,
    *,
    ids_CR: np.ndarray,
    sentences: Iterable[pa.Array],
    num_positives: int = 1,
    values: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write sentences.arrow (large_string blocks, in the order of ids) and rows.arrow (one record batch) into an existing folder.

    Args:
        ids_CR: (C, R) sentence ids of the rows.
        values: (R,) label and relation of the rows, if any.
    """
    schema = pa.schema([pa.field("sentence", pa.large_string(), nullable=False)])
    with pa.OSFile(str(folder / SENTENCES), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for block in sentences:
            writer.write_batch(pa.record_batch([block.cast(pa.large_string())], schema=schema))
    columns = dict(zip(roles(len(ids_CR), num_positives=num_positives), ids_CR, strict=True))
    columns |= {name: np.asarray(value, dtype=VALUES[name]) for name, value in (values or {}).items()}
    rows = pa.record_batch(
        [pa.array(column) for column in columns.values()],
        schema=pa.schema([pa.field(name, pa.from_numpy_dtype(column.dtype), nullable=False) for name, column in columns.items()]),
    )
    with pa.OSFile(str(folder / ROWS), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)


def _mapped(path: Path) -> pa.RecordBatchFileReader:
    with reading(path, expected=EXPECTED, remedy=drop_remedy(path.parent)):
        return pa.ipc.open_file(pa.memory_map(str(path), "r"))


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return (name,) * count if count < 2 else tuple(f"{name}_{number}" for number in range(1, count + 1))


def _stacked(columns: list[np.ndarray]) -> np.ndarray:
    """Return the columns as one (C, R) array without copying: in one record batch they are at equal distances."""
    starts = [column.__array_interface__["data"][0] for column in columns]
    distances = set(np.diff(starts).tolist())
    if len(columns) == 1:
        return columns[0][None, :]
    if len(distances) != 1:
        raise _damaged(Path(ROWS), "columns at unequal distances")
    return np.lib.stride_tricks.as_strided(
        columns[0], shape=(len(columns), len(columns[0])), strides=(distances.pop(), columns[0].itemsize), writeable=False
    )


def _damaged(path: Path, found: str) -> DataError:
    return DataError(where=str(path), found=found, expected=EXPECTED, remedy=drop_remedy(path))


LONG_WORDS = 256  # words; longer sentences are truncated by most encoders (512 tokens) and recipes (often 75)


@dataclass(frozen=True, kw_only=True)
class CorpusFacts:
    """Counts of a corpus that was built.

    Args:
        num_dropped_duplicates: rows equal to an earlier row in every column.
        num_repeating: rows kept with one sentence twice (a positive equal to its anchor teaches little, a negative equal to its positive
            teaches the wrong thing).
        num_over_long: unique sentences of more than 256 words.
        mean_words, max_words: whitespace-separated words per unique sentence.
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
    """Write the corpus of `rows` into `folder` (created if absent) and return its counts.

    Equal strings are one sentence; ids follow the order of first appearance, row by row; nulls and whitespace count as empty.

    Args:
        columns: the source's names for anchor, `num_positives` positives, and negatives.
        limit: number of distinct rows to keep, drawn with `seed` in order.
        add_reversed: append (positive, anchor[, negative]) for every row.
        values: columns `label` and `relation` to keep; rows that differ in a value are distinct.
        where: name of the corpus in errors.

    Raises:
        DataError: absent or non-text columns, no rows, or an empty sentence (naming row and column).
    """
    strings, numbers = numbered_texts(_texts(rows, columns, values, where))
    identity_RC = np.stack(numbers, axis=1)
    values_VR = [rows[name].combine_chunks().to_numpy(zero_copy_only=False).astype(VALUES[name]) for name in values]
    distinct_R = np.flatnonzero(first_of_each_row(_with_values(identity_RC, values_VR)))
    kept_R = distinct_R[drawn_rows(len(distinct_R), limit, seed=seed)]
    ids_RC, first_cells = number_by_appearance(identity_RC[kept_R])
    sentences = strings.take(pa.array(identity_RC[kept_R].reshape(-1)[first_cells]))
    ids_CR = _reversed_too(ids_RC.T) if add_reversed else ids_RC.T
    folder.mkdir(parents=True, exist_ok=True)
    write_corpus(
        folder,
        ids_CR=np.ascontiguousarray(ids_CR, dtype=np.int32 if len(sentences) < 2**31 else np.int64),
        sentences=(sentences.slice(first, SENTENCES_PER_BATCH) for first in range(0, len(sentences), SENTENCES_PER_BATCH)),
        num_positives=num_positives,
        values={name: column[kept_R] for name, column in zip(values, values_VR, strict=True)},
    )
    words_S = pc.list_value_length(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(sentences))).to_numpy()
    return CorpusFacts(
        num_rows=ids_CR.shape[1],
        num_sentences=len(sentences),
        num_dropped_duplicates=rows.num_rows - len(distinct_R),
        num_repeating=int(np.count_nonzero(np.diff(np.sort(ids_CR, axis=0), axis=0).min(axis=0, initial=1) == 0)),
        num_over_long=int(np.count_nonzero(words_S > LONG_WORDS)),
        mean_words=float(words_S.mean()),
        max_words=int(words_S.max()),
    )


def numbered_texts(columns: Sequence[pa.ChunkedArray]) -> tuple[pa.LargeStringArray, list[np.ndarray]]:
    """Return the distinct strings of columns of texts, and for each column the number of each cell's string."""
    chunks = [chunk for column in columns for chunk in column.cast(pa.large_string()).chunks]
    encoded = pa.chunked_array(chunks, pa.large_string()).combine_chunks().dictionary_encode()
    ends = np.cumsum([len(column) for column in columns])
    return encoded.dictionary, np.split(encoded.indices.to_numpy().astype(np.int64), ends[:-1])


def _texts(rows: pa.Table, columns: tuple[str, ...], values: tuple[str, ...], where: str) -> list[pa.ChunkedArray]:
    """The checked columns of sentences."""
    check_columns(where, rows.column_names, (*columns, *values))
    if rows.num_rows == 0:
        raise DataError(where=where, found="no rows", expected="at least one", remedy="Check the split and the limit.")
    for column in columns:
        kind = rows.schema.field(column).type
        if not (pa.types.is_large_string(kind) or pa.types.is_string(kind)):
            raise DataError(where=where, found=f"column {column} of type {kind}", expected="text", remedy="Name a column of sentences.")
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(rows[column]), ""), True)
        if pc.any(blank).as_py():
            found = f"an empty sentence in {row_name(pc.index(blank, True).as_py())}, column {column}"
            raise DataError(where=where, found=found, expected="text in every cell", remedy="Correct the row, or remove it from the file.")
    return [rows[column] for column in columns]


def first_of_each_row(identity_RC: np.ndarray) -> np.ndarray:
    """Return (R,) bool: whether no earlier row is equal in every column."""
    keys = identity_RC[:, 0]
    for column in identity_RC.T[1:]:
        _, keys = np.unique(keys * (int(column.max(initial=0)) + 1) + column, return_inverse=True)  # below 2⁶³ for 3 · 10⁹ strings
    _, representatives = np.unique(keys, return_index=True)
    first = np.zeros(len(keys), dtype=bool)
    first[representatives] = True
    return first


def number_by_appearance(identity_RC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Renumber strings from 0 in order of first appearance, row by row.

    Returns:
        (R, C) int64 ids, and (S,) int64 the first cell (row × C + column) of each id, ascending.
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


def _reversed_too(ids_CR: np.ndarray) -> np.ndarray:
    """Return (C, ≤ 2R): the rows, then new ones with anchor and positive swapped."""
    both = np.concatenate([ids_CR, ids_CR[[1, 0, *range(2, len(ids_CR))]]], axis=1)
    return both[:, first_of_each_row(both.T)]
