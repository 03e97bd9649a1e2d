"""What Python programs hand over: one sentence or many, vectors as arrays, tensors or lists; mistakes are told at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sentdist.errors import DataError
from sentdist.inference.given import given_embeddings, given_sentences


def test_one_sentence_and_any_iterable_of_them() -> None:
    assert given_sentences("w", "a dog") == ["a dog"]
    assert given_sentences("w", (word for word in ("a", "b"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "found a NoneType"),
        ([], "found a list of 0"),
        (["a", None], "found a NoneType among them"),
        (["fine", "bad \ud83d"], "w: sentence 1: found half of a surrogate pair"),
    ],
)
def test_what_is_no_list_of_sentences(given: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        given_sentences("w", given)


@pytest.mark.parametrize("made", [np.asarray, torch.tensor, list])
def test_vectors_of_any_kind(made: Any) -> None:
    assert given_embeddings("w", made([[1.0, 2.0], [3.0, 4.0]]), of=2).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(DataError, match=r"shape \(2, 2\); expected \(3, width\)"):
        given_embeddings("w", made([[1.0, 2.0], [3.0, 4.0]]), of=3)
