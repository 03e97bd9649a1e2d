"""Overlap: what folding makes equal, and pairs in either order."""

from __future__ import annotations

import pytest

from sentdist.data.leaks import fold_text, pairs_seen


@pytest.mark.parametrize("sentence", ["A man's here.", "a man ' s here", "  A MAN’S, here!", "Ａ man s here"])
def test_folding(sentence: str) -> None:
    assert fold_text(sentence) == "a man s here"


def test_pairs() -> None:
    train = [("It rains.", "It is wet."), ("A.", "A.")]
    test = [("it is wet", "it rains"), ("It rains.", "It is wet."), ("It rains.", "A."), ("a", "a")]
    assert pairs_seen(test, train).tolist() == [True, True, False, True]
    assert pairs_seen([], train).shape == (0,)


def test_order_does_not_count() -> None:
    tested, trained = [("b", "a"), ("a", "b"), ("c", "d")], [("a", "b"), ("d", "c")]
    assert pairs_seen(tested, trained).tolist() == [True, True, True]
