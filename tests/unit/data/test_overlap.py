"""Overlap: what folding makes equal, and pairs in either order."""

from __future__ import annotations

import pytest

from sentdist.data.overlap import as_written, fold_text, pairs_seen, sentences_seen


@pytest.mark.parametrize("sentence", ["A man's here.", "a man ' s here", "  A MAN’S, here!", "Ａ man s here"])
def test_folding(sentence: str) -> None:
    assert fold_text(sentence) == "a man s here"


def test_sentences() -> None:
    test = ["It rains.", "it rains", "It snows."]
    assert sentences_seen(test, ["It rains!"]).tolist() == [True, True, False]
    assert sentences_seen(test, ["it rains"], fold=as_written).tolist() == [False, True, False]


def test_pairs() -> None:
    train = [("It rains.", "It is wet."), ("A.", "A.")]
    test = [("it is wet", "it rains"), ("It rains.", "It is wet."), ("It rains.", "A."), ("a", "a")]
    assert pairs_seen(test, train).tolist() == [True, True, False, True]
    assert pairs_seen(test, train, fold=as_written, either_order=False).tolist() == [False, True, False, False]
    assert pairs_seen([], train).shape == (0,)
