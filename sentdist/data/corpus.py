"""A training corpus on disk: unique sentences with an id each, the rows as ids and values, all memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.errors import DataError
from sentdist.reading import drop_remedy, reading

SENTENCES = "sentences.arrow"
ROWS = "rows.arrow"
LABEL = "label"  # (R,) float32: what a pair is worth
RELATION = "relation"  # (R,) int32: which relation holds between anchor and positive
EXPECTED = f"a corpus ({SENTENCES}, {ROWS})"
VALUES = {LABEL: np.dtype(np.float32), RELATION: np.dtype(np.int32)}
SENTENCES_PER_BATCH = 1 << 16


@dataclass(frozen=True, kw_only=True)
class OpenedCorpus:
    """An opened corpus: R rows of C columns over S unique sentences.

    ids: (C, R) int32 or int64 sentence ids, a read-only view of the mapped file: workers on one host share its pages and keep no copy.
    labels, relations: (R,) values of the rows, mapped too; None where the corpus has none.
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
        """Map the two files of a corpus folder. Raises DataError when one is absent or is not what `write_corpus` writes."""
        rows, sentences = _mapped(folder / ROWS), _mapped(folder / SENTENCES)
        if rows.num_record_batches != 1 or sentences.schema.names != ["sentence"]:
            raise _damaged(folder, "files that are no corpus")
        with reading(folder / ROWS, expected=EXPECTED, remedy=drop_remedy(folder)):  # a block is read only when it is asked for
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
        """Return the sentences of the ids, in their order. Raises DataError for an id outside 0 … S − 1."""
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
        """Yield all sentences in the order of their ids, a block at a time, without ever holding more than a block."""
        for batch in self._batches:
            yield batch.to_pylist()


def checked_ids(ids: np.ndarray, num_sentences: int, *, where: str, remedy: str) -> np.ndarray:
    """Sentence ids of any shape as (K,) int64, read in order. Raises DataError for one outside 0 … num_sentences − 1."""
    wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
    if wanted.size and not (wanted.min() >= 0 and wanted.max() < num_sentences):
        found = f"sentence ids from {wanted.min()} to {wanted.max()}"
        raise DataError(where=where, found=found, expected=f"0 to {num_sentences - 1}", remedy=remedy)
    return wanted


def roles(num_columns: int, *, num_positives: int = 1) -> tuple[str, ...]:
    """Names of a row's sentences: anchor, positive[_1 …], negative[_1 …]."""
    num_negatives = max(0, num_columns - 1 - num_positives)
    return ("anchor", *_numbered("positive", num_positives), *_numbered("negative", num_negatives))[:num_columns]


def write_corpus(
    folder: Path,
    *,
    ids_CR: np.ndarray,
    sentences: Iterator[pa.Array],
    num_positives: int = 1,
    values: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write sentences.arrow (blocks in the order of their ids, large_string) and rows.arrow (one record batch) into an existing folder.

    values: (R,) label and relation of the rows, where there are any.
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
    """Return the columns as one (C, R) array without copying: in one record batch they lie at equal distances."""
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
    return DataError(
        where=str(path),
        found=found,
        expected=EXPECTED,
        remedy=drop_remedy(path),
    )
