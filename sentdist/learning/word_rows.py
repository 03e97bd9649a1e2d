"""Which rows of its word embeddings a step reads: no other row has a gradient, so no other row's has to travel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Parameter

from sentdist.learning.encoder.batch import sent_to
from sentdist.learning.gather import begin_union
from sentdist.learning.gradient_pieces import MOST_ROWS


class WordRows:
    """The rows of a table of word embeddings that are read in a step: on this rank, then on all.

    table: the embeddings (V, D), on their device.
    padding: the row that stands where a sentence has ended; it counts as read in every step.
    Kept on the host, where tokens come from, so that nobody waits for a GPU to learn how many rows there are.
    """

    def __init__(self, table: Parameter, *, padding: int) -> None:
        self.table = table
        self._device, self._padding = table.device, padding
        self._read_V = torch.zeros(len(table), dtype=torch.uint8)
        self._of_all_V = self._read_V
        self._end: Callable[[], None] | None = None

    def read(self, token_ids: Tensor) -> None:
        """These rows are read. token_ids: on the host."""
        self._read_V[token_ids] = 1

    def begin_union(self) -> None:
        """Begin to tell the other ranks, once all has been read. Collective, once a step; nobody waits."""
        self._of_all_V = self._read_V.clone()  # while this is away, a micro-batch that is computed again says once more what it reads
        self._of_all_V[self._padding] = 1
        self._end = begin_union(self._of_all_V)

    def of_all(self) -> Tensor | None:
        """The rows (R,) int64 that any rank has read, ascending, on the table's device; None where they are so many that the whole table
        may as well travel."""
        self._wait()
        rows_R = self._of_all_V.nonzero().squeeze(1)
        return sent_to(rows_R, self._device) if len(rows_R) <= MOST_ROWS * len(self.table) else None

    def forget(self) -> None:
        """Make ready for the next step."""
        self._wait()
        self._read_V.zero_()

    def _wait(self) -> None:
        if self._end is not None:
            self._end()
        self._end = None
