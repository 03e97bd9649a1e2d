"""Sizes of banks, and limits of gradient buckets. Does not import torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sentdist.errors import DataError, brief, first_line

REMEDY = "Run `sentdist store drop KEY` (the end of the folder's name); the next run makes the bank again."


@dataclass(frozen=True, kw_only=True)
class BankShape:
    """One encoder's bank: S rows of width D, `rows_per_shard` per file (the last file may hold fewer)."""

    num_sentences: int
    width: int
    dtype: str
    rows_per_shard: int

    @property
    def num_shards(self) -> int:
        return -(-self.num_sentences // self.rows_per_shard)

    @property
    def num_bytes(self) -> int:
        return bank_bytes(self.num_sentences, self.width, self.dtype)

    def shard_rows(self, shard: int) -> int:
        """Return the number of rows of shard number `shard`."""
        return min(self.rows_per_shard, self.num_sentences - shard * self.rows_per_shard)


def bank_bytes(num_sentences: int, width: int, dtype: str) -> int:
    """Return the size of one encoder's bank: S · D numbers of 2 bytes (float16) or 4 bytes (float32)."""
    return num_sentences * width * np.dtype(dtype).itemsize


def bytes_together(shapes: Sequence[BankShape]) -> int:
    """Return the size of the banks of N encoders over the same sentences as one table, in the widest of their types."""
    widest = np.result_type(*(shape.dtype for shape in shapes)).name
    return len(shapes) * bank_bytes(shapes[0].num_sentences, shapes[0].width, widest)


def bank_shape(text: str, *, where: str) -> BankShape:
    """Parse a `bank.json`; DataError at `where` if it is invalid."""
    try:
        found = json.loads(text)
        shape = BankShape(**{name: found[name] for name in ("num_sentences", "width", "dtype", "rows_per_shard")})
        sound = shape.num_sentences > 0 and shape.width > 0 and shape.rows_per_shard > 0 and shape.dtype in ("float16", "float32")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            where=where, found=f"{type(error).__name__}: {first_line(error)}", expected="a readable bank.json", remedy=REMEDY
        ) from error
    if not sound:
        expected = "positive num_sentences, width and rows_per_shard, dtype float16 or float32"
        raise DataError(where=where, found=brief(found), expected=expected, remedy=REMEDY)
    return shape


BUCKET_BYTES = 25 * 1024 * 1024  # of gradients, as in DDP: smaller ones are sent earlier, larger ones use the network better
BUCKET_NUMBERS = BUCKET_BYTES // 4  # DeepSpeed's default of 500 million is 2 GB, more than any gradient of an encoder trained here
# Up to this share of a word embedding table, only its rows are sent; beyond it, copying them out and back costs what it saves.
MOST_ROWS = 0.5
# Parameters that ZeRO 3 gathers at a time and keeps between two uses. DeepSpeed's default of a thousand million is more than nearly
# all encoders have: it would never release any.
MOST_LIVE = 50_000_000
