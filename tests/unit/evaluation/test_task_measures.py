"""Average precision, re-ranking and clustering: against loops, against known answers, and where they are not defined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import v_measure_score

from sentdist.errors import DataError
from sentdist.evaluation.classification import score_clusters
from sentdist.evaluation.retrieval import score_candidates
from sentdist.evaluation.sts import score_paraphrases


def _average_precision(scores: list[float], labels: list[int]) -> float:
    """By definition, for scores that all differ: the mean over relevant items of the precision at their rank."""
    ranked = [label for _, label in sorted(zip(scores, labels, strict=True), reverse=True)]
    return 100 * float(np.mean([sum(ranked[: place + 1]) / (place + 1) for place, label in enumerate(ranked) if label]))


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 1)), min_size=2, max_size=30, unique_by=lambda pair: round(pair[0], 3)))
def test_average_precision_equals_its_definition(pairs: list[tuple[float, int]]) -> None:
    scores, labels = [round(score, 3) for score, _ in pairs], [label for _, label in pairs]
    found = score_paraphrases(scores, labels)
    if 0 < sum(labels) < len(labels):
        assert found.ap == pytest.approx(_average_precision(scores, labels))
        assert score_paraphrases(3 * np.asarray(scores) + 1, labels).ap == pytest.approx(found.ap)
    else:
        assert found.ap is None


def test_alike_similarities_have_no_average_precision() -> None:
    assert score_paraphrases([0.5, 0.5 + 1e-9, 0.5], ["1", "0", "1"]).ap is None
    assert score_paraphrases([0.5, 0.5 + 1e-5, 0.5], ["0", "1", "0"]).ap == 100.0
    assert score_paraphrases([0.5, 0.4, 0.3], [1, 0, 1]).share == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    ("similarities", "labels", "message"),
    [
        ([0.1, 0.2], ["1", "2"], "label 2"),
        ([0.1, np.nan], ["1", "0"], "NaN"),
        ([0.1], ["1", "0"], "for 2 labels"),
        ([], [], "for 0 labels"),
    ],
)
def test_bad_pairs_are_named(similarities: list[float], labels: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        score_paraphrases(similarities, labels)


def test_candidates_are_scored_within_their_query() -> None:
    scores = [0.9, 0.8, 0.1, 0.2, 0.3]
    found = score_candidates(scores, query_ids=list("aabbb"), document_ids=list("vwxyz"), relevance=[0, 2, 1, 0, 1])
    np.testing.assert_allclose(found.per_query["map"], [50.0, 100 * (1 + 2 / 3) / 2])
    np.testing.assert_allclose(found.per_query["mrr@10"], [50.0, 100.0])
    assert found.measures["map"] == pytest.approx(np.mean(found.per_query["map"]))
    twelve = {"query_ids": ["q"] * 12, "document_ids": [str(number) for number in range(12)]}
    for rank, expected in ((10, 10.0), (11, 0.0)):
        one = score_candidates(-np.arange(12) / 12, relevance=[int(place == rank) for place in range(1, 13)], **twelve)
        assert one.per_query["mrr@10"].tolist() == [expected]


def test_a_first_hit_behind_ten_candidates_has_no_reciprocal_rank() -> None:
    scores, relevance = np.linspace(1, 0, 11).tolist(), [0] * 10 + [1]
    found = score_candidates(scores, query_ids=["q"] * 11, document_ids=[*"abcdefghijk"], relevance=relevance)
    assert found.measures["mrr@10"] == 0.0 and found.measures["map"] == pytest.approx(100 / 11)


def test_ties_keep_the_order_of_the_candidates() -> None:
    rows = {"query_ids": ["q"] * 3 + ["r"] * 2, "document_ids": ["z", "y", "x", "b", "a"], "relevance": [1, 0, 0, 0, 1]}
    found = score_candidates([0.5, 0.5 + 1e-9, 0.4, 0.1, 0.9], **rows)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.per_query["map"], [100.0, 100.0])


def test_one_score_for_all_candidates_is_not_defined() -> None:
    found = score_candidates([0.5] * 4, query_ids=list("aabb"), document_ids=list("vwxy"), relevance=[1, 0, 1, 0])
    assert set(found.measures.values()) == {None}


@pytest.mark.parametrize(
    ("scores", "relevance", "message"),
    [([0.1, 0.2], [0, 0], "1 of 1 queries without a relevant"), ([0.1, np.inf], [1, 0], "1 of them not finite")],
)
def test_bad_candidates_are_named(scores: list[float], relevance: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        score_candidates(scores, query_ids=["q", "q"], document_ids=["x", "y"], relevance=relevance)


def test_separate_clouds_are_one_cluster_each_and_noise_is_none() -> None:
    draw = np.random.default_rng(0)
    labels = [str(number % 3) for number in range(60)]
    clouds = 5 * np.eye(3)[[int(label) for label in labels]] + draw.normal(size=(60, 3)) * 0.1
    found = score_clusters(clouds, labels)
    assert max(found.of_runs) == pytest.approx(100.0) and found.v_measure == pytest.approx(np.mean(found.of_runs))
    noise = score_clusters(draw.normal(size=(60, 3)), labels).v_measure
    assert noise is not None and noise < 25.0


def test_every_run_begins_at_another_seed() -> None:
    cloud, labels = np.random.default_rng(2).normal(size=(80, 5)), [str(number % 8) for number in range(80)]
    found = score_clusters(cloud, labels)
    assert len(found.of_runs) == 5 == len(set(found.of_runs))
    assert found.v_measure == pytest.approx(np.mean(found.of_runs))
    assert found.of_runs[0] == pytest.approx(100 * v_measure_score(labels, found.clusters))


def test_lengths_do_not_matter_to_clusters() -> None:
    draw = np.random.default_rng(1)
    cloud, labels = draw.normal(size=(40, 4)), [str(number % 4) for number in range(40)]
    scaled = cloud * draw.uniform(0.1, 9.0, size=(40, 1))
    assert score_clusters(scaled, labels).v_measure == pytest.approx(score_clusters(cloud, labels).v_measure)


def test_clusters_of_too_few_different_embeddings_are_not_defined() -> None:
    assert score_clusters(np.tile([[1.0, 2.0]], (6, 1)), list("aabbcc")).v_measure is None


@pytest.mark.parametrize(("labels", "message"), [(["a"] * 4, "1 of them different"), (["a", "b"], "2 labels")])
def test_bad_clusters_are_named(labels: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        score_clusters(np.eye(4), labels)


def test_embeddings_with_nan_are_refused_everywhere() -> None:
    with pytest.raises(DataError, match="NaN"):
        score_clusters([[np.nan, 1.0], [0.0, 1.0]], ["a", "b"])
