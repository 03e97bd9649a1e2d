"""Targets of the auxiliary tasks: for each sentence the shares of its tags and words, looked up by id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sentdist.kernels.tensors import sent_to


class TargetRows(Protocol):
    """The targets of K sentences: tags dense; words sparse, since a sentence has a dozen of 10–30 thousand."""

    @property
    def pos(self) -> np.ndarray:
        """(K, V) float32 relative frequency of each tag; rows sum to 1, or to 0 where a sentence has no tag."""
        ...

    @property
    def bow_rows(self) -> np.ndarray:
        """(E,) index of the sentence that an entry belongs to, ascending."""
        ...

    @property
    def bow_words(self) -> np.ndarray:
        """(E,) word of the vocabulary."""
        ...

    @property
    def bow_shares(self) -> np.ndarray:
        """(E,) float32 relative frequency; those of a sentence sum to 1. A sentence without a word of the vocabulary has no entry."""
        ...


class TargetReader(Protocol):
    """The targets of all sentences of a corpus."""

    @property
    def num_tags(self) -> int: ...

    @property
    def num_words(self) -> int: ...

    def rows(self, sentence_ids: np.ndarray) -> TargetRows:
        """Return the targets of K sentence ids (any shape, read in order); DataError for an id outside the corpus."""
        ...


@dataclass(frozen=True, kw_only=True)
class WordShares:
    """The shares of words in S sentences as entries (row, word, share) on one device."""

    rows: Tensor  # (E,) int64
    words: Tensor  # (E,) int64
    shares: Tensor  # (E,) float
    num_rows: int  # S

    @property
    def mass(self) -> Tensor:
        """(S,) sum of a sentence's shares: 1, or 0 if it has no word of the vocabulary."""
        return self.summed(self.shares)

    def summed(self, values_E: Tensor) -> Tensor:
        """Return (S,) sums of the entries' values per sentence."""
        return values_E.new_zeros(self.num_rows).index_add(0, self.rows, values_E)


def as_tensors(rows: TargetRows, *, like: Tensor) -> tuple[Tensor, WordShares]:
    """Return tags (K, V) and words of K sentences as tensors with the device and type of the embeddings `like`."""
    pos_KV = _floats(rows.pos, like)
    ids = [sent_to(torch.from_numpy(np.asarray(ids, dtype=np.int64)), like.device) for ids in (rows.bow_rows, rows.bow_words)]
    return pos_KV, WordShares(rows=ids[0], words=ids[1], shares=_floats(rows.bow_shares, like), num_rows=len(pos_KV))


def _floats(values: np.ndarray, like: Tensor) -> Tensor:
    return sent_to(torch.from_numpy(np.asarray(values)).to(like.dtype), like.device)
