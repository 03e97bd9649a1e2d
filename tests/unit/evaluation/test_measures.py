"""Exact search, and the measures of STS, pairs, re-ranking, retrieval and clustering: against loops and known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from sentdist.evaluation.classification import score_clusters
from sentdist.evaluation.nearest import NearestDocuments, search
from sentdist.evaluation.retrieval import DEPTH, RankingScore, score_candidates, score_ranking
from sentdist.evaluation.sts import jaccard_scores, paired_cosines, pearson, ranked_precision, spearman


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
        assert merged.num_documents == 300
        assert merged.rows == set(whole.documents.flatten().tolist())


def _scored(queries_QD: np.ndarray, documents_RD: np.ndarray, **judged: Any) -> RankingScore:
    return score_ranking(search(queries_QD, documents_RD, depth=min(DEPTH, len(documents_RD))), **judged)


def test_ties_keep_the_order_of_the_corpus_in_ranking_and_measures() -> None:
    documents = np.tile([[1.0, 2.0]], (6, 1))
    ranking = search(np.array([[2.0, 1.0]]), (documents[start : start + 2] for start in (0, 2, 4)), depth=4)
    assert ranking.documents.tolist() == [[0, 1, 2, 3]]
    # Names in reverse: trec_eval alone would rank ties by name, and find d0 at another place.
    scored = _scored(
        np.array([[2.0, 1.0]]), documents, query_ids=["q"], document_ids=[f"d{9 - n}" for n in range(6)], qrels={"q": {"d7": 1}}
    )
    assert scored.per_query["mrr"].tolist() == [pytest.approx(100 / 3)]


def test_a_relevant_document_without_a_text_counts_as_not_found() -> None:
    score = _scored(
        np.eye(2), np.eye(2), query_ids=["q", "r"], document_ids=["d", "e"], qrels={"q": {"d": 1, "gone": 1}, "r": {"e": 1}},
        unranked={"gone"},
    )  # fmt: skip
    assert score.per_query["recall@10"].tolist() == score.per_query["map"].tolist() == [50.0, 100.0]


def test_a_constant_ranks_nothing_though_queries_differ() -> None:
    for documents, is_constant in [([[1.0, 2.0]] * 3, True), ([[1.0, 2.0]] * 2 + [[2.0, 1.0]], False)]:
        qrels = {"q": {"d0": 1}, "r": {"d1": 1}}
        score = _scored(np.eye(2), np.array(documents), query_ids=["q", "r"], document_ids=["d0", "d1", "d2"], qrels=qrels)
        assert (score.measures["map"] is None) is is_constant


def _average_precision(scores: list[float], labels: list[int]) -> float:
    """By definition, for scores that all differ: the mean over relevant items of the precision at their rank."""
    ranked = [label for _, label in sorted(zip(scores, labels, strict=True), reverse=True)]
    return 100 * float(np.mean([sum(ranked[: place + 1]) / (place + 1) for place, label in enumerate(ranked) if label]))


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 1)), min_size=2, max_size=30, unique_by=lambda pair: round(pair[0], 3)))
def test_average_precision_equals_its_definition(pairs: list[tuple[float, int]]) -> None:
    scores, labels = [round(score, 3) for score, _ in pairs], [label for _, label in pairs]
    found = ranked_precision(np.asarray(scores), np.asarray(labels))
    if 0 < sum(labels) < len(labels):
        assert found == pytest.approx(_average_precision(scores, labels))
        assert ranked_precision(3 * np.asarray(scores) + 1, np.asarray(labels)) == pytest.approx(found)
    else:
        assert found is None


def test_alike_similarities_have_no_average_precision() -> None:
    assert ranked_precision(np.array([0.5, 0.5 + 1e-9, 0.5]), np.array([1, 0, 1])) is None
    assert ranked_precision(np.array([0.5, 0.5 + 1e-5, 0.5]), np.array([0, 1, 0])) == 100.0


def test_candidates_are_scored_within_their_query() -> None:
    scores = [0.9, 0.8, 0.1, 0.2, 0.3]
    found = score_candidates(scores, query_ids=list("aabbb"), relevance=[0, 2, 1, 0, 1])
    np.testing.assert_allclose(found.per_query["map"], [50.0, 100 * (1 + 2 / 3) / 2])
    np.testing.assert_allclose(found.per_query["mrr@10"], [50.0, 100.0])
    assert found.measures["map"] == pytest.approx(np.mean(found.per_query["map"]))
    for rank, expected in ((10, 10.0), (11, 0.0)):
        one = score_candidates(-np.arange(12) / 12, relevance=[int(place == rank) for place in range(1, 13)], query_ids=["q"] * 12)
        assert one.per_query["mrr@10"].tolist() == [expected]


def test_separate_clouds_are_one_cluster_each_and_noise_is_none() -> None:
    draw = np.random.default_rng(0)
    labels = [str(number % 3) for number in range(60)]
    clouds = 5 * np.eye(3)[[int(label) for label in labels]] + draw.normal(size=(60, 3)) * 0.1
    found, clusters = score_clusters(clouds, labels, num_runs=1, where="t")
    assert found == pytest.approx(100.0) and len(set(clusters.tolist())) == 3
    noise, _ = score_clusters(draw.normal(size=(60, 3)), labels, where="t")
    assert noise is not None and noise < 25.0


def test_clusters_of_too_few_different_embeddings_are_not_defined() -> None:
    assert score_clusters(np.tile([[1.0, 2.0]], (6, 1)), list("aabbcc"), where="t")[0] is None


def _pairs(num_pairs: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(num_pairs, 8)), generator.normal(size=(num_pairs, 8)), generator.uniform(0, 5, num_pairs)


def test_score_is_the_rank_correlation_of_cosines() -> None:
    first, second, gold = _pairs()
    found = paired_cosines(first, second, where="sts")
    cosines = np.sum(first * second, axis=1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    np.testing.assert_allclose(found, cosines, atol=1e-12)
    assert spearman(found, gold) == pytest.approx(100 * scipy.stats.spearmanr(cosines, gold).statistic)
    assert pearson(found, gold) == pytest.approx(100 * scipy.stats.pearsonr(cosines, gold).statistic)


def test_a_constant_has_no_correlation() -> None:
    first, second, gold = _pairs()
    assert spearman(paired_cosines(first, second, where="sts"), np.full(60, 3.0)) is None
    collapsed = np.tile(first[:1], (60, 1)) * (1 + 1e-8 * second)
    assert spearman(paired_cosines(collapsed, collapsed[::-1], where="sts"), gold) is None


def test_jaccard_counts_words_once() -> None:
    np.testing.assert_allclose(jaccard_scores(["A cat cat sat", "", "x"], ["a dog sat", "", "y"]), [0.5, 0.0, 0.0])
