"""Which rows make up each batch of an epoch: the same for a seed and an epoch, however many workers share a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from sentdist.data.seeded_order import shuffled
from sentdist.errors import DataError

CHUNK_ROWS = 1 << 18  # rows turned into Python integers at a time: about 60 MB for three columns

NumberedRow = tuple[int, tuple[int, ...]]  # its number, the ids of its sentences


def epoch_batches(ids_CR: np.ndarray, *, batch_size: int, seed: int, epoch: int, unique_sentences: bool) -> np.ndarray:
    """Return (num_batches, M) row numbers: every row at most once, in an order that depends on seed and epoch alone; M = batch_size.

    ids_CR: (C, R) sentence ids of the R rows. With `unique_sentences` no sentence occurs in two rows of a batch (it would be its own
    negative); a row that would break this waits for the next batch that can take it.
    Rows that fill no last batch are left out of this epoch: R mod M of them,
    more where one sentence is in so many rows that they do not spread over the batches.
    Raises DataError when there is no full batch. Time: O(R), about 1 µs a row.
    """
    num_rows = ids_CR.shape[1]
    if batch_size < 1:
        raise DataError(where="batches", found=f"batch size {batch_size}", expected="at least 1", remedy="Correct the batch size.")
    if num_rows < batch_size:
        raise DataError(
            where="batches",
            found=f"{num_rows} rows for a batch of {batch_size}",
            expected="at least as many rows as a batch takes",
            remedy="Make the batch smaller or the corpus larger.",
        )
    order = shuffled(num_rows, seed=seed, stream=f"epoch {epoch}")
    if not unique_sentences:
        return order[: num_rows // batch_size * batch_size].reshape(-1, batch_size)
    packed = _Packing(batch_size).pack(_rows_in(order, ids_CR))
    if not packed:
        raise DataError(
            where="batches",
            found=f"no {batch_size} rows of {num_rows} without a sentence in common",
            expected="at least one batch in which no sentence occurs twice",
            remedy="Make the batch smaller, or allow repeated sentences (unique_sentences: false).",
        )
    return np.asarray(packed, dtype=np.int64)


def _rows_in(order: np.ndarray, ids_CR: np.ndarray) -> Iterator[NumberedRow]:
    for first in range(0, len(order), CHUNK_ROWS):
        rows = order[first : first + CHUNK_ROWS]
        yield from zip(rows.tolist(), zip(*(column[rows].tolist() for column in ids_CR), strict=True), strict=True)


class _Packing:
    """Rows put into batches one after another; a row that cannot join the batch at hand waits behind the sentence that it has in common
    with it.

    A batch takes at most one of the rows that wait behind a sentence, so it asks each sentence once:
    the work stays proportional to the rows even where a single sentence stands in half of them.
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.batch: list[int] = []
        self.taken: set[int] = set()
        self.waiting: dict[int, deque[NumberedRow]] = {}
        self.sentences: deque[int] = deque()  # the keys of `waiting`, in the order in which they are asked

    def pack(self, rows: Iterator[NumberedRow]) -> list[list[int]]:
        batches: list[list[int]] = []
        while True:
            self.batch, self.taken = [], set()
            self._add_waiting(self.batch_size)
            while len(self.batch) < self.batch_size and (row := next(rows, None)) is not None:
                self._add(row)
            self._add_waiting(len(self.sentences))  # no fresh rows: whoever waits may still fill it
            if len(self.batch) < self.batch_size:
                return batches
            batches.append(self.batch)

    def _add(self, row: NumberedRow) -> None:
        number, sentences = row
        if self.taken.isdisjoint(sentences):
            self.batch.append(number)
            self.taken.update(sentences)
            return
        shared = next(sentence for sentence in sentences if sentence in self.taken)
        if shared not in self.waiting:
            self.waiting[shared] = deque()
            self.sentences.append(shared)
        self.waiting[shared].append(row)

    def _add_waiting(self, most: int) -> None:
        for _ in range(min(most, len(self.sentences))):
            if len(self.batch) == self.batch_size:
                return
            sentence = self.sentences.popleft()
            queue = self.waiting[sentence]
            row = queue.popleft()
            if queue:
                self.sentences.append(sentence)
            else:
                del self.waiting[sentence]
            self._add(row)
