"""Targets of auxiliary tasks made on the spot: random shares of tags and words for a few sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The targets of K sentences."""

    pos: np.ndarray
    bow_rows: np.ndarray
    bow_words: np.ndarray
    bow_shares: np.ndarray


class RandomTargets:
    """Random targets for S sentences; every fourth sentence has no word of the vocabulary."""

    def __init__(self, num_sentences: int, *, num_tags: int = 4, num_words: int = 9, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.num_tags, self.num_words = num_tags, num_words
        counts = draw.integers(0, 4, (num_sentences, num_tags)) + np.eye(num_tags, dtype=int)[np.arange(num_sentences) % num_tags]
        self.pos_SV = (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)
        words = draw.integers(0, 3, (num_sentences, num_words)) + np.eye(num_words, dtype=int)[np.arange(num_sentences) % num_words]
        shares = words / words.sum(axis=1, keepdims=True)
        shares[::4] = 0.0
        self.bow_SV = shares.astype(np.float32)

    def rows(self, sentence_ids: np.ndarray) -> Rows:
        ids = np.asarray(sentence_ids).ravel()
        chosen = self.bow_SV[ids]
        rows, words = np.nonzero(chosen)
        return Rows(pos=self.pos_SV[ids], bow_rows=rows, bow_words=words, bow_shares=chosen[rows, words])
