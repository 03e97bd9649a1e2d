"""Random orders that a seed fixes for good, whatever the version of numpy and the machine."""

from __future__ import annotations

import hashlib

import numpy as np


def digest_u64(*parts: object) -> int:
    """Return 64 bits that depend on all parts and on their order (BLAKE2b of their text)."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def shuffled(num_items: int, *, seed: int, stream: str) -> np.ndarray:
    """Return the numbers 0 … num_items − 1 in random order, (num_items,) int64.

    Items are sorted by SplitMix64 (Steele, Lea and Flood 2014) of their number: a bijection, so there are no ties and any sort gives the same
    order. numpy's own shuffles may change between its versions (NEP 19); a corpus order must not.
    """
    with np.errstate(over="ignore"):
        word = np.arange(num_items, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(digest_u64(seed, stream))
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word ^= word >> np.uint64(31)
    return np.argsort(word)
