"""The token ids of all sentences of a corpus in mapped files: a step gathers the sentences that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch

from sentdist.errors import DataError
from sentdist.learning.encoder.batch import TokenBatch
from sentdist.reading import drop_remedy, read_array

IDS = "ids.npy"  # (T,) uint16, or uint32 where a vocabulary is larger: sentence after sentence
BOUNDS = "bounds.npy"  # (S + 1,) int64: sentence s is ids[bounds[s]:bounds[s + 1]]


@dataclass(frozen=True, kw_only=True)
class TokenTable:
    """S sentences as a tokenizer reads them. Both arrays are views of mapped files: processes of a host share their pages."""

    folder: Path
    ids: np.ndarray
    bounds: np.ndarray

    @classmethod
    def open(cls, folder: Path) -> TokenTable:
        """Map the files of `merge_shards`; DataError when they are damaged."""
        expected = f"a table of tokens ({IDS}, {BOUNDS})"
        ids, bounds = (
            read_array(folder / name, expected=expected, remedy=drop_remedy(folder), mapped=True).view(np.ndarray) for name in (IDS, BOUNDS)
        )
        if ids.dtype not in (np.uint16, np.uint32) or bounds.dtype != np.int64 or len(bounds) < 2 or bounds[-1] != len(ids):
            raise DataError(where=str(folder), found="arrays that do not fit together", expected=expected, remedy=drop_remedy(folder))
        return cls(folder=folder, ids=ids, bounds=bounds)

    @property
    def num_sentences(self) -> int:
        return len(self.bounds) - 1

    def batch(self, sentence_ids: np.ndarray) -> TokenBatch:
        """The tokens of sentences (any shape, read in order), on the host: what the tokenizer gives for them. How many were truncated is
        not known here. DataError for an id outside the table."""
        wanted = np.asarray(sentence_ids, dtype=np.int64).ravel()
        if wanted.min() < 0 or wanted.max() >= self.num_sentences:
            raise DataError(
                where=str(self.folder),
                found=f"sentence ids from {wanted.min()} to {wanted.max()}",
                expected=f"0 to {self.num_sentences - 1}",
                remedy="The rows belong to another corpus: build it again.",
            )
        starts = self.bounds[wanted]
        lengths = self.bounds[wanted + 1] - starts
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        return TokenBatch(
            token_ids=torch.from_numpy(self.ids[places].astype(np.int64)),
            boundaries=torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32)),
            lengths=tuple(lengths.tolist()),
        )


def write_shard(file: IO[bytes], token_ids: Sequence[Sequence[int]], *, num_truncated: int) -> None:
    """Write some sentences, for `merge_shards`."""
    lengths = np.fromiter(map(len, token_ids), dtype=np.int64, count=len(token_ids))
    flat = np.fromiter((token for sentence in token_ids for token in sentence), dtype=np.uint32, count=int(lengths.sum()))
    np.savez(file, ids=flat, lengths=lengths, num_truncated=np.array(num_truncated))


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """Counts of a whole table."""

    num_sentences: int
    num_tokens: int
    num_truncated: int
    longest: int


def merge_shards(folder: Path, shards: Sequence[Path]) -> TableFacts:
    """Make the two files in `folder` from shards in the order of their sentences. Memory holds one shard."""
    sizes, largest, longest, num_truncated = [], 0, 0, 0
    for path in shards:
        with np.load(path) as shard:
            ids, lengths = shard["ids"], shard["lengths"]
            sizes.append((len(ids), len(lengths)))
            largest, longest = max(largest, int(ids.max())), max(longest, int(lengths.max()))
            num_truncated += int(shard["num_truncated"])
    num_tokens, num_sentences = (sum(column) for column in zip(*sizes, strict=True))
    dtype = np.uint16 if largest < 2**16 else np.uint32
    flat = np.lib.format.open_memmap(folder / IDS, mode="w+", dtype=dtype, shape=(num_tokens,))
    bounds = np.lib.format.open_memmap(folder / BOUNDS, mode="w+", dtype=np.int64, shape=(num_sentences + 1,))
    token = sentence = 0
    for path in shards:
        with np.load(path) as shard:
            ids, lengths = shard["ids"], shard["lengths"]
        flat[token : token + len(ids)] = ids
        bounds[sentence + 1 : sentence + 1 + len(lengths)] = token + np.cumsum(lengths)
        token, sentence = token + len(ids), sentence + len(lengths)
    flat.flush()
    bounds.flush()
    return TableFacts(num_sentences=num_sentences, num_tokens=num_tokens, num_truncated=num_truncated, longest=longest)
