"""Keep a whole bank on a GPU, where each step gathers rows by index without copies from the host. Importing it does not load torch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sentdist.learning.freed_memory import give_back_gpu_memory

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sentdist.learning.bank import StoredBank
    from sentdist.learning.encoder.tokens import Batch

ROWS_AT_ONCE = 16384  # of each encoder, copied together; the host holds no more of a bank than these


class DeviceBank:
    """A bank in the memory of one device."""

    def __init__(self, table_NSD: Tensor, *, where: str) -> None:
        """where: the bank's name in errors."""
        self._table_NSD, self._where = table_NSD, where

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        """See `BankReader.rows`; on the device, without waiting."""
        from sentdist.kernels.tensors import sent_to

        return self.gathered(sent_to(self.ids(sentence_ids).flatten(), self._table_NSD.device))

    def prepared(self, batch: Batch) -> Batch:
        """See `BankReader.prepared`: only ids, which are fast to send."""
        return replace(batch, bank_ids=self.ids(batch.regulated_ids))

    def augmented(self, batch: Batch) -> Tensor:
        if batch.bank_ids is not None:
            return self.gathered(batch.bank_ids)
        return self.rows(batch.regulated_ids).unflatten(1, batch.regulated_ids.shape)

    def ids(self, sentence_ids: np.ndarray) -> Tensor:
        """Check ids and return them on the host, as `gathered` takes them; DataError for one outside the bank."""
        import torch

        from sentdist.learning.bank import check_ids

        check_ids(sentence_ids, num_sentences=self._table_NSD.shape[1], where=self._where)
        return torch.from_numpy(np.array(sentence_ids, dtype=np.int64))

    def gathered(self, ids: Tensor) -> Tensor:
        """Return the (N, …, D) rows of ids of any shape on the device, in one operation there."""
        return self._table_NSD.index_select(1, ids.flatten()).unflatten(1, ids.shape)


@dataclass(kw_only=True)
class _Shelf:
    """The bank that is kept for the next training, with its identity and device."""

    identity: Hashable = None
    bank: DeviceBank | None = None


_shelf: _Shelf | None = None


@contextmanager
def bank_stays() -> Iterator[None]:
    """Inside, a bank stays on the GPU until a training needs another, or none; the outermost context frees it. Outside, it ends with its
    training.
    """
    global _shelf
    before, _shelf = _shelf, _shelf or _Shelf()
    try:
        yield
    finally:
        _shelf = before
        if before is None:
            give_back_gpu_memory()


def on_device(bank: StoredBank, device: torch.device) -> DeviceBank:
    """Return a bank on a device: the kept one if it is the same, else a new copy, after freeing the kept one."""
    identity = (bank.identity, device)
    if _shelf is not None and _shelf.bank is not None and _shelf.identity == identity:
        return _shelf.bank
    let_bank_go()
    copied = DeviceBank(_copied(bank, device), where=bank.where)
    if _shelf is not None:
        _shelf.identity, _shelf.bank = identity, copied
    return copied


def let_bank_go() -> None:
    """Free the bank that is kept for the next training."""
    if _shelf is not None:
        _shelf.identity = _shelf.bank = None


def _copied(bank: StoredBank, device: torch.device) -> Tensor:
    import torch

    num_encoders, _, width = (first := bank.rows(np.zeros(1, dtype=np.int64))).shape
    table_NSD = torch.empty(num_encoders, bank.num_sentences, width, dtype=first.dtype, device=device)
    for start in range(0, bank.num_sentences, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, bank.num_sentences)
        for of_encoder, rows in zip(table_NSD, bank.rows(np.arange(start, stop)), strict=True):
            of_encoder[start:stop].copy_(rows)
    return table_NSD
