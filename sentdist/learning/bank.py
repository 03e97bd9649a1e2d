"""Read and check banks: the embeddings of sentences by frozen encoders, looked up by sentence id."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sentdist.errors import DataError
from sentdist.files import drop_remedy, read_array, reading
from sentdist.learning.bank_shape import REMEDY, BankShape, bank_shape, bytes_together
from sentdist.learning.encoder.tokens import Batch


class BankReader(Protocol):
    """The (N, S, D) frozen embeddings of S sentences by N encoders."""

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        """Return (N, K, D) constants in the stored type for K sentence ids (any shape, read in order); DataError for an id outside the
        bank.
        """
        ...

    def prepared(self, batch: Batch) -> Batch:
        """Return the batch with all that can be looked up before its step; DataError for an id outside the bank."""
        ...

    def augmented(self, batch: Batch) -> Tensor:
        """Return the (N, 1 + P, B, D) embeddings of this rank's anchors and positives."""
        ...


class HostBank:
    """Base class of banks on the host: the embeddings are looked up before a step."""

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        raise NotImplementedError

    def prepared(self, batch: Batch) -> Batch:
        return replace(batch, augmented=self.augmented(batch))

    def augmented(self, batch: Batch) -> Tensor:
        ids_CB = batch.regulated_ids
        return self.rows(ids_CB).unflatten(1, ids_CB.shape)


class StoredBank(BankReader, Protocol):
    """A bank on the host with its size and identity."""

    @property
    def num_sentences(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...  # of all encoders, in the type that `rows` returns

    @property
    def identity(self) -> Hashable: ...  # equal if and only if the numbers are equal

    @property
    def where(self) -> str: ...  # name in errors


def read_bank_shape(folder: Path) -> BankShape:
    """Read `bank.json` of a bank artifact; DataError if it is missing or invalid."""
    path = folder / "bank.json"
    with reading(path, expected="a readable bank.json", remedy=drop_remedy(folder), most_bytes=1 << 16):
        return bank_shape(path.read_text(encoding="utf-8"), where=str(path))


def look_up(encoders: Sequence[Sequence[np.ndarray]], sentence_ids: np.ndarray, *, rows_per_shard: Sequence[int]) -> np.ndarray:
    """Return the (N, K, D) rows of K ids from the shards of N encoders: row = id, shard = id // rows_per_shard."""
    ids = np.asarray(sentence_ids).ravel()
    dtype = np.result_type(*(shards[0] for shards in encoders))
    rows_NKD = np.empty((len(encoders), ids.size, encoders[0][0].shape[1]), dtype=dtype)
    for rows_KD, shards, per_shard in zip(rows_NKD, encoders, rows_per_shard, strict=True):
        _look_up(shards, ids, per_shard, rows_KD)
    return rows_NKD


def _look_up(shards: Sequence[np.ndarray], ids: np.ndarray, rows_per_shard: int, rows_KD: np.ndarray) -> None:
    if len(shards) == 1 and shards[0].dtype == rows_KD.dtype:
        np.take(shards[0].view(np.ndarray), ids, axis=0, out=rows_KD, mode="clip")  # ids were checked; to check again takes a copy
        return
    shard_of_row, place = np.divmod(ids, rows_per_shard)
    for shard in np.unique(shard_of_row):
        chosen = shard_of_row == shard
        rows_KD[chosen] = shards[shard][place[chosen]]


def check_ids(sentence_ids: np.ndarray, *, num_sentences: int, where: str) -> None:
    """Raise DataError unless every id is a row of a bank of `num_sentences` sentences."""
    ids = np.asarray(sentence_ids)
    outside = ids[(ids < 0) | (ids >= num_sentences)]
    if outside.size:
        raise DataError(
            where=where,
            found=f"{outside.size} ids outside the bank, e.g. {int(outside.flat[0])}",
            expected=f"ids from 0 to {num_sentences - 1}",
            remedy="Embed the corpus of the training: a bank belongs to one corpus.",
        )


def check_rows(rows_KD: np.ndarray, *, first_id: int, where: str) -> None:
    """Raise DataError unless all rows are finite and nonzero (zero has no cosine). Called once, when a bank is made."""
    largest_K = np.abs(rows_KD).max(axis=1)
    bad = np.flatnonzero(~(np.isfinite(largest_K) & (largest_K > 0)))
    if bad.size:
        raise DataError(
            where=where,
            found=f"{len(bad)} embeddings that are zero or not finite, first that of sentence {first_id + int(bad[0])}",
            expected="finite, nonzero embeddings",
            remedy="Check the encoder; if its numbers exceed the range of float16, store the bank as float32.",
        )


class FileBank(HostBank):
    """A bank in the memory-mapped shards of N bank artifacts: no private copy, all processes of a host share the pages."""

    def __init__(self, folders: Sequence[Path | str]) -> None:
        """Map the artifacts in `folders`, one per encoder, in the order of n; DataError if one is damaged or they do not fit together."""
        self.folders = tuple(Path(folder) for folder in folders)
        if not self.folders:
            raise DataError(
                where="bank", found="no artifact", expected="at least one", remedy="Give the bank at least one phi, or train with Eq. 1."
            )
        self.shapes = tuple(read_bank_shape(folder) for folder in self.folders)
        self._shards = tuple(_map_shards(folder, shape) for folder, shape in zip(self.folders, self.shapes, strict=True))
        for folder, shape in zip(self.folders, self.shapes, strict=True):
            first = self.shapes[0]
            if (shape.num_sentences, shape.width) != (first.num_sentences, first.width):
                found = f"{shape.num_sentences} sentences of width {shape.width}"
                raise _damaged(folder, found, f"{first.num_sentences} of width {first.width}, as {self.folders[0]} has")

    @property
    def num_sentences(self) -> int:
        return self.shapes[0].num_sentences

    @property
    def num_bytes(self) -> int:
        return bytes_together(self.shapes)

    @property
    def identity(self) -> Hashable:
        """Folders and their creation times: a bank that was removed and made again has other numbers."""
        facts = [(folder / "bank.json").stat() for folder in self.folders]
        return tuple((str(folder), fact.st_ino, fact.st_mtime_ns) for folder, fact in zip(self.folders, facts, strict=True))

    @property
    def where(self) -> str:
        return ", ".join(map(str, self.folders))

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        ids = np.asarray(sentence_ids).ravel()
        check_ids(ids, num_sentences=self.num_sentences, where=self.where)
        return torch.from_numpy(look_up(self._shards, ids, rows_per_shard=[shape.rows_per_shard for shape in self.shapes]))


def _map_shards(folder: Path, shape: BankShape) -> tuple[np.ndarray, ...]:
    return tuple(_map_shard(folder / "shards" / f"{shard:05d}.npy", shape, shard) for shard in range(shape.num_shards))


def _map_shard(path: Path, shape: BankShape, shard: int) -> np.ndarray:
    expected = f"{shape.dtype} array of shape {(shape.shard_rows(shard), shape.width)}"
    rows = read_array(path, expected=f"a {expected}", remedy=drop_remedy(path.parents[1]), mapped=True)
    if rows.shape != (shape.shard_rows(shard), shape.width) or rows.dtype.name != shape.dtype:
        raise _damaged(path, f"a {rows.dtype.name} array of shape {rows.shape}", f"a {expected}")
    return rows


def _damaged(path: Path, found: str, expected: str) -> DataError:
    return DataError(where=str(path), found=found, expected=expected, remedy=REMEDY)
