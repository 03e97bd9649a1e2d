"""Exact search is exact: equal to sorting all rounded float64 cosines, however the corpus is cut, and in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentdist.evaluation import nearest
from sentdist.evaluation.nearest import NearestDocuments, search


def _sorted(queries_QD: np.ndarray, documents_RD: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """All cosines in float64, rounded, by a stable sort."""
    unit_QD, unit_RD = (x / np.linalg.norm(x.astype(float), axis=1, keepdims=True) for x in (queries_QD, documents_RD))
    cosines_QR = np.round(np.array([[float(q @ r) for r in unit_RD] for q in unit_QD]), 6)
    order = np.argsort(-cosines_QR, axis=1, kind="stable")[:, :depth]
    return order, np.take_along_axis(cosines_QR, order, axis=1)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_documents=st.integers(1, 60),
    num_distinct=st.integers(1, 60),
    depth=st.integers(1, 70),
    rows_per_tile=st.integers(1, 25),
    noise=st.sampled_from([0.0, 1e-7, 1e-6, 1.0]),
    dtype=st.sampled_from(["float64", "float32", "float16"]),
)
def test_search_equals_sorting_all_cosines(
    seed: int, num_documents: int, num_distinct: int, depth: int, rows_per_tile: int, noise: float, dtype: str
) -> None:
    """Documents repeat, exactly or all but, so that ties and near ties stand at every border."""
    draw = np.random.default_rng(seed)
    distinct = draw.normal(size=(num_distinct, 5))
    documents = distinct[draw.integers(0, num_distinct, num_documents)] + noise * draw.normal(size=(num_documents, 5))
    queries, documents = draw.normal(size=(3, 5)).astype(dtype), (documents * 10.0 ** draw.integers(-2, 3)).astype(dtype)
    ranking = search(queries, (documents[row : row + rows_per_tile] for row in range(0, num_documents, rows_per_tile)), depth=depth)
    rows, cosines = _sorted(queries, documents, depth)
    np.testing.assert_array_equal(ranking.documents, rows)
    np.testing.assert_array_equal(ranking.cosines, cosines)


def test_parts_of_a_corpus_merge_to_the_whole() -> None:
    for depth in [9, 120]:
        draw = np.random.default_rng(1)
        queries, documents = draw.normal(size=(7, 8)), draw.normal(size=(5, 8))[draw.integers(0, 5, 300)]
        whole = search(queries, documents, depth=depth)
        merged = NearestDocuments(queries, depth=depth)
        for first in (200, 0, 100):  # as they come from workers
            part = NearestDocuments(queries, depth=depth, first_row=first)
            part.add(documents[first : first + 100])
            merged.merge(part.hits, part.num_documents)
        np.testing.assert_array_equal(merged.ranking().documents, whole.documents)
        np.testing.assert_array_equal(merged.ranking().cosines, whole.cosines)
        assert merged.ranking().num_documents == whole.num_documents == 300
        assert merged.rows == set(whole.documents.flatten().tolist())


def test_lengths_that_float32_cannot_square_change_nothing() -> None:
    for scale in [1e-30, 1e30]:
        draw = np.random.default_rng(2)
        queries, documents = draw.normal(size=(3, 6)), draw.normal(size=(50, 6))
        documents[::7] *= scale
        np.testing.assert_array_equal(search(queries, documents, depth=5).documents, _sorted(queries, documents, 5)[0])


def test_many_queries_are_searched_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(3)
    queries, documents = draw.normal(size=(40, 6)), draw.normal(size=(90, 6))
    expected = search(queries, documents, depth=5)
    monkeypatch.setattr(nearest, "QUERIES_PER_BLOCK", 7)
    monkeypatch.setattr(nearest, "PAIRS_PER_BLOCK", 11)
    np.testing.assert_array_equal(search(queries, documents, depth=5).documents, expected.documents)
