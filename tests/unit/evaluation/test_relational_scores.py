"""Relational similarities, the cosines between relations, the curve over a weight, link prediction:
planted embeddings whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from sentdist.errors import DataError
from sentdist.evaluation.relational import (
    relation_cosines,
    relation_weights,
    relational_queries,
    relational_similarities,
    score_links,
    similarities_by_relation,
    weight_curve,
)
from sentdist.evaluation.sts import paired_cosines, spearman

NAMES = ("entailment", "duplicate-question", "paraphrase")
CLOSE = 1e-12  # float64 cosines


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("directions", ["one", "max_both"])
def test_similarities_equal_a_loop(directions: str) -> None:
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


def test_relations_of_zeros_give_the_plain_cosine() -> None:
    first, second = draw(9, 4), draw(9, 4, seed=1)
    for directions in ("one", "max_both"):
        found = relational_similarities(first, second, np.zeros((2, 4)), [0.25, 0.75], directions=directions)
        np.testing.assert_allclose(found, paired_cosines(first, second, where="pairs"), atol=CLOSE)


def test_both_directions_make_the_score_symmetric() -> None:
    first, second, relations = draw(9, 4), draw(9, 4, seed=1), draw(2, 4, seed=2)
    forth, back = (relational_similarities(*pair, relations, [1.0, 0.5]) for pair in ((first, second), (second, first)))
    np.testing.assert_allclose(forth, back, atol=CLOSE)
    one, other = (relational_similarities(*pair, relations, [1.0, 0.5], directions="one") for pair in ((first, second), (second, first)))
    assert np.abs(one - other).max() > 0.1


def test_the_relation_that_holds_scores_highest() -> None:
    """Tails are heads shifted by relation 1: only under it is every cosine 1."""
    heads, relations = draw(20, 6), draw(3, 6, seed=1)
    found = similarities_by_relation(heads, heads + relations[1], relations)
    np.testing.assert_allclose(found[1], 1.0, atol=CLOSE)
    assert (found.argmax(axis=0) == 1).all()


def test_weights_by_name() -> None:
    assert relation_weights({"duplicate-question": 0.5, "entailment": 1.0}, NAMES, normalize=False).tolist() == [1.0, 0.5, 0.0]
    np.testing.assert_allclose(relation_weights({"duplicate-question": 0.5, "entailment": 1.0}, NAMES, normalize=True), [2 / 3, 1 / 3, 0.0])


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ({"entailmemt": 1.0}, '"entailmemt"'),
        ({"entailment": -1.0}, "-1.0"),
        ({"entailment": float("nan")}, "nan"),
        ({"entailment": 0.0}, "no weight above 0"),
        ({}, "no weight above 0"),
    ],
)
def test_weights_without_a_meaning_are_refused(weights: dict[str, float], found: str) -> None:
    with pytest.raises(DataError, match=found):
        relation_weights(weights, NAMES, normalize=True)


def test_an_encoder_without_relations_has_no_weights() -> None:
    with pytest.raises(DataError, match="it has none"):
        relation_weights({"entailment": 1.0}, (), normalize=True)


@pytest.mark.parametrize("relations", [np.zeros((2, 5)), np.zeros((0, 4)), np.full((2, 4), np.inf)], ids=["wider", "none", "infinite"])
def test_relations_that_do_not_fit_are_refused(relations: np.ndarray) -> None:
    with pytest.raises(DataError, match="relations"):
        similarities_by_relation(draw(3, 4), draw(3, 4, seed=1), relations)


def test_unknown_directions_are_refused() -> None:
    with pytest.raises(DataError, match='"both"'):
        relational_similarities(draw(3, 4), draw(3, 4), draw(1, 4), [1.0], directions="both")


def test_cosines_between_relations() -> None:
    vectors = np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [1.0, 1.0]])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(
        relation_cosines(vectors), [[1, 0, -1, half], [0, 1, 0, half], [-1, 0, 1, -half], [half, half, -half, 1]], atol=CLOSE
    )


@pytest.mark.parametrize("directions", ["one", "max_both"])
def test_a_curve_is_the_score_at_each_weight(directions: str) -> None:
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


def test_a_perfect_table_ranks_every_tail_first_and_none_does_not() -> None:
    tails, relations = draw(40, 8), 2 * draw(2, 8, seed=1)
    tail, relation = np.arange(40), np.arange(40) % 2
    heads = tails - relations[relation]
    settings = {"tail": tail, "relation": relation, "names": ("a", "b")}
    found = score_links(heads, tails, relations_RD=relations, **settings)
    assert [score.name for score in found.scores] == ["a", "b", "all"]
    assert all((score.mrr, *score.hits.values()) == (100.0, 100.0, 100.0, 100.0) for score in found.scores)
    assert [score.num_candidates for score in found.scores] == [20.0, 20.0, 20.0]
    plain = score_links(heads, tails, relations_RD=None, **settings)
    assert plain.overall.mrr < 80
    everyone = score_links(heads, tails, relations_RD=relations, pool="all", **settings)
    assert everyone.overall.num_candidates == 40.0


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


def test_ties_share_their_mean_rank() -> None:
    found = score_links([[1.0, 0.0]] * 5, np.ones((5, 2)), tail=range(5), relation=[0] * 5, relations_RD=None, names=("a",))
    assert found.ranks.tolist() == [3.0] * 5


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


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"tail": [5]}, "tail 5 to 5"),
        ({"relation": [1]}, "relation 1 to 1"),
        ({"known": [(0, 9)]}, "known tail 9"),
        ({"relations_RD": np.zeros((1, 3))}, r"\(1, 3\) relations"),
        ({"tail": [0, 1]}, r"\(2,\)"),
    ],
)
def test_triples_that_do_not_fit_are_refused(changes: dict[str, object], found: str) -> None:
    settings = {"tail": [0], "relation": [0], "relations_RD": None, "names": ("a",)} | changes
    with pytest.raises(DataError, match=found):
        score_links([[1.0, 0.0]], np.eye(2), **settings)  # type: ignore[arg-type]
