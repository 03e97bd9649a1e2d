"""Overlap: what folding makes equal, and pairs in either order."""

from __future__ import annotations

from sentdist.data.overlap import fold_text, pairs_seen


def test_folding() -> None:
    assert {fold_text(text) for text in ("A man's here.", "a man ' s here", "  A MAN’S, here!", "Ａ man s here")} == {"a man s here"}


def test_pairs() -> None:
    train = [("It rains.", "It is wet."), ("A.", "A.")]
    test = [("it is wet", "it rains"), ("It rains.", "It is wet."), ("It rains.", "A."), ("a", "a")]
    assert pairs_seen(test, train).tolist() == [True, True, False, True]
    assert pairs_seen([], train).shape == (0,)
