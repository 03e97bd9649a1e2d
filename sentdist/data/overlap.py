"""How much of a test set a training corpus has already seen, sentence by sentence or pair by pair."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np


def fold_text(sentence: str) -> str:
    """Return the words of a sentence without case, punctuation and spacing:
    "A man's here." and "a man ' s here" both give "a man s here"."""
    folded = unicodedata.normalize("NFKC", sentence).casefold()
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded).split())


def pairs_seen(
    test: Iterable[tuple[str, str]],
    train: Iterable[tuple[str, str]],
) -> np.ndarray:
    """Return (P,) bool: is this test pair, folded and in either order, among the training pairs?

    STS-B train against STS12–16 test: 4755 of 12544 pairs as written and in order, 4759 in either order, 4760 after folding too.
    """

    def key(first: str, second: str) -> tuple[str, str]:
        first, second = fold_text(first), fold_text(second)
        return (second, first) if second < first else (first, second)

    seen = {key(*pair) for pair in train}
    return np.fromiter((key(*pair) in seen for pair in test), dtype=bool)
