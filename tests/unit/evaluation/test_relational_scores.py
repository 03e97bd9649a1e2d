"""Relational similarities, the cosines between relations, the curve over a weight, link prediction:
planted embeddings whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from sentdist.evaluation.link_prediction import score_links
from sentdist.evaluation.metrics import spearman
from sentdist.evaluation.relational import (
    relation_cosines,
    relation_weights,
    relational_queries,
    relational_similarities,
    weight_curve,
)

NAMES = ("entailment", "duplicate-question", "paraphrase")
CLOSE = 1e-12  # float64 cosines


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_similarities_equal_a_loop() -> None:
    for directions in ["one", "max_both"]:
        first, second, relations, weights = draw(7, 4), draw(7, 4, seed=1), draw(3, 4, seed=2), [1.0, 0.5, 0.0]
        found = relational_similarities(first, second, relations, weights, directions=directions)
        for pair in range(7):
            forward = sum(weights[k] * cosine(first[pair] + relations[k], second[pair]) for k in range(3))
            backward = sum(weights[k] * cosine(second[pair] + relations[k], first[pair]) for k in range(3))
            assert found[pair] == pytest.approx(forward if directions == "one" else max(forward, backward), abs=CLOSE)


def test_queries_rank_as_the_relational_score() -> None:
    queries, documents, relations, weights = draw(4, 5), draw(9, 5, seed=1), draw(3, 5, seed=2), [1.0, 0.5, 0.0]
    found = relational_queries(queries, relations, weights)
    for query in range(4):
        same = np.repeat(queries[query : query + 1], 9, axis=0)
        scores = relational_similarities(same, documents, relations, weights, directions="one")
        inner = documents @ found[query] / np.linalg.norm(documents, axis=1)
        np.testing.assert_allclose(inner, scores, atol=CLOSE)


def test_weights_by_name() -> None:
    assert relation_weights({"duplicate-question": 0.5, "entailment": 1.0}, NAMES, normalize=False).tolist() == [1.0, 0.5, 0.0]
    np.testing.assert_allclose(relation_weights({"duplicate-question": 0.5, "entailment": 1.0}, NAMES, normalize=True), [2 / 3, 1 / 3, 0.0])


def test_cosines_between_relations() -> None:
    vectors = np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [1.0, 1.0]])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(
        relation_cosines(vectors), [[1, 0, -1, half], [0, 1, 0, half], [-1, 0, 1, -half], [half, half, -half, 1]], atol=CLOSE
    )


def test_a_curve_is_the_score_at_each_weight() -> None:
    for directions in ["one", "max_both"]:
        first, second, relations, gold = draw(30, 4), draw(30, 4, seed=1), draw(2, 4, seed=2), draw(30, seed=3)
        curve = weight_curve(
            first,
            second,
            relations,
            NAMES[:2],
            {"entailment": 1.0, "duplicate-question": 0.7},
            relation="duplicate-question",
            grid=(0, 0.5, 2),
            score=lambda similarities: spearman(similarities, gold),
            directions=directions,
        )
        assert curve.weights == (0.0, 0.5, 2.0)
        for weight, found in zip(curve.weights, curve.scores, strict=True):
            similarities = relational_similarities(first, second, relations, [1.0, weight], directions=directions)
            assert found == pytest.approx(spearman(similarities, gold), abs=1e-9)
        assert len(set(curve.scores)) == 3


def test_ranks_by_hand() -> None:
    """One head along the first axis; tails at rising angles to it; the true one is third."""
    tails = np.array([[np.cos(angle), np.sin(angle)] for angle in (0.1, 0.2, 0.3, 0.4)])
    settings = {"tail": [2], "relation": [0], "relations_RD": None, "names": ("a",)}
    found = score_links([[1.0, 0.0]], tails, pool="all", **settings)
    assert found.ranks.tolist() == [3.0]
    assert found.overall.mrr == pytest.approx(100 / 3)
    assert found.overall.hits == {1: 0.0, 3: 100.0, 10: 100.0}
    filtered = score_links([[1.0, 0.0]], tails, pool="all", known=[(0, 0)], **settings)
    assert filtered.ranks.tolist() == [2.0] and filtered.overall.num_candidates == 3.0
    alone = score_links([[1.0, 0.0]], tails, pool="all", known=[(0, 0), (0, 1), (0, 3)], **settings)
    assert (alone.overall.mrr, alone.overall.num_candidates) == (100.0, 1.0)


def test_ranks_do_not_depend_on_tiles() -> None:
    rng = np.random.default_rng(0)
    heads, tails, relations = draw(1300, 4), draw(50, 4, seed=1), draw(2, 4, seed=2)
    tail, relation = rng.integers(0, 50, 1300), rng.integers(0, 2, 1300)
    known = [(row, (tail[row] + 1) % 50) for row in range(1299, -1, -3)]  # in an order of their own
    settings = {"tail": tail, "relation": relation, "relations_RD": relations, "names": ("a", "b"), "pool": "all"}
    ranks = score_links(heads, tails, known=known, **settings).ranks
    left_out = set(known)
    for row in (0, 3, 511, 512, 1299):
        scores = [cosine(heads[row] + relations[relation[row]], candidate) for candidate in tails]
        ahead = [k for k in range(50) if scores[k] > scores[tail[row]] and (row, k) not in left_out]
        assert ranks[row] == 1 + len(ahead)
