"""What Python programs hand over: one sentence or many, vectors as arrays, tensors or lists; mistakes are reported at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from sentdist.errors import DataError
from sentdist.inference.arguments import given_embeddings, given_names, given_sentences


def test_one_sentence_and_any_iterable_of_them() -> None:
    assert given_sentences("w", "a dog") == ["a dog"]
    assert given_sentences("w", (word for word in ("a", "b"))) == ["a", "b"]


@pytest.mark.parametrize(
    "column",
    [pa.array(["a dog", "a cat"]), pa.chunked_array([["a dog"], ["a cat"]]), pd.Series(["a dog", "a cat"]), np.array(["a dog", "a cat"])],
)
def test_a_column_of_another_library_is_a_list_of_sentences(column: Any) -> None:
    assert given_sentences("here", column) == ["a dog", "a cat"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "found a NoneType"),
        ([], "found a list of 0"),
        (["a", None], r"w\[1\]: found None, of type NoneType; expected a str. Leave out what is missing: table\['text'\].dropna\(\)"),
        (["a", float("nan")], r"w\[1\]: found nan, of type float; expected a str. Leave out"),
        (["a", ["b", "c"]], r"w\[1\]: found \['b', 'c'\], of type list; expected a str. Give each as a str"),
        (b"a dog", "found a bytes; expected a list of sentences"),
        (np.array("a dog"), r"found an array of shape \(\); expected a list of sentences"),
        (np.array([["a", "b"]]), r"found an array of shape \(1, 2\)"),
        (["fine", "bad \ud83d"], r"w\[1\]: found half of a surrogate pair"),
        (["fine", " "], r"w\[1\]: found ' '; expected a sentence with at least one visible character"),
        ("", "w: found ''; expected a sentence with at least one visible character"),
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


@pytest.mark.parametrize(
    "made", [torch.ones(1, 2, requires_grad=True), torch.ones(1, 2, dtype=torch.bfloat16), pd.DataFrame([[1.0, 1.0]])], ids=str
)
def test_vectors_as_training_and_tables_have_them(made: Any) -> None:
    assert given_embeddings("w", made, of=1).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("made", [[[1.0, 2.0], [3.0]], np.ones((2, 2), dtype=complex), [["a", "b"], ["c", "d"]]])
def test_what_is_no_table_of_numbers(made: Any) -> None:
    with pytest.raises(DataError, match=r"w: found .*; expected \(2, width\)"):
        given_embeddings("w", made, of=2)


@pytest.mark.parametrize("given", [{"sts": 1}, pd.DataFrame({"sts": ["a"]})])
def test_a_table_is_no_list_of_names(given: Any) -> None:
    with pytest.raises(DataError, match=r"found a .*; expected a name or several"):
        given_names("w", given)
