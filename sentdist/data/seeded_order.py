"""Random orders that a seed fixes for good, whatever the version of numpy and the machine."""

from __future__ import annotations

import hashlib

import numpy as np

MAX_DRAWS = 64  # for a row that may not have what was drawn: then too little is left to draw from


def digest_u64(*parts: object) -> int:
    """Return 64 bits that depend on all parts and on their order (BLAKE2b of their text)."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def random_words(num_words: int, *, seed: int, stream: str) -> np.ndarray:
    """Return (num_words,) uint64, no two alike: SplitMix64 (Steele,
    Lea and Flood 2014) of 0 … num_words − 1 from a start that seed and stream fix.

    numpy's own generators may change between its versions (NEP 19); what a seed once drew must not.
    """
    with np.errstate(over="ignore"):
        word = np.arange(num_words, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(digest_u64(seed, stream))
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word ^= word >> np.uint64(31)
    return word


def shuffled(num_items: int, *, seed: int, stream: str) -> np.ndarray:
    """Return the numbers 0 … num_items − 1 in random order, (num_items,) int64: sorted by their random words, of which no two are alike."""
    return np.argsort(random_words(num_items, seed=seed, stream=stream))
