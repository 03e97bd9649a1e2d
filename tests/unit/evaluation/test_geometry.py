"""The shape of a cloud of embeddings, probes, relations and the terms of RCL: against loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sentdist.evaluation.geometry import alignment, effective_rank, mean_cosine, measure_geometry, singular_values, uniformity
from sentdist.evaluation.linear_models import probe_distribution, probe_regression
from sentdist.evaluation.relational import (
    LinkPrediction,
    link_similarities,
    rank_links,
    relation_cosines,
    relation_weights,
    relational_similarities,
    weight_curve,
)
from sentdist.evaluation.sts import spearman


@pytest.fixture
def cloud() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(23, 5)) + 0.5


def test_against_loops_over_pairs(cloud: np.ndarray) -> None:
    unit = cloud / np.linalg.norm(cloud, axis=1, keepdims=True)
    pairs = list(itertools.combinations(range(23), 2))
    distances = [np.sum((unit[i] - unit[j]) ** 2) for i, j in pairs]
    assert uniformity(cloud) == pytest.approx(np.log(np.mean(np.exp(-2 * np.array(distances)))), abs=1e-12)
    assert mean_cosine(cloud) == pytest.approx(np.mean([unit[i] @ unit[j] for i, j in pairs]), abs=1e-12)
    assert alignment(cloud[:10], cloud[10:20]) == pytest.approx(np.mean(np.sum((unit[:10] - unit[10:20]) ** 2, axis=1)))


def test_tiling_changes_nothing(cloud: np.ndarray) -> None:
    for rows_per_tile in [1, 22]:
        assert uniformity(cloud, rows_per_tile=rows_per_tile) == pytest.approx(uniformity(cloud), abs=1e-12)


def test_extremes() -> None:
    axes = np.eye(6)
    assert effective_rank(singular_values(axes)) == pytest.approx(6)
    assert effective_rank(np.array([3.0, 1.0])) == pytest.approx(0.75**-0.75 * 0.25**-0.25)
    assert mean_cosine(axes) == pytest.approx(0)
    collapsed = np.ones((6, 6))
    assert effective_rank(singular_values(collapsed)) == pytest.approx(1)
    assert mean_cosine(collapsed) == pytest.approx(1)
    assert uniformity(collapsed) == pytest.approx(0)
    assert uniformity(np.array([[1.0, 0.0], [-1.0, 0.0]])) == pytest.approx(-8)
    assert np.sum(singular_values(axes) ** 2) == pytest.approx(1)


def test_alignment_is_absent_without_positives(cloud: np.ndarray) -> None:
    measured = measure_geometry(cloud)
    assert measured.alignment is None


S, V = 600, 5
DRAW = np.random.default_rng(0)
SHARES = DRAW.dirichlet(np.full(V, 0.3), size=S)
MIXED = DRAW.standard_normal((V, 9))
SIGNAL = np.log(SHARES + 1e-2) @ MIXED  # a linear function away from the logits of the shares
NOISE = DRAW.standard_normal((S, 9))


def test_a_distribution_that_is_there_is_found_and_noise_is_not() -> None:
    reported, noise = probe_distribution(SIGNAL, SHARES), probe_distribution(NOISE, SHARES)
    assert reported.explained > 0.9
    assert noise.explained < 0.05
    assert reported.best < reported.cross_entropy < reported.floor
    assert reported.floor == noise.floor


def test_the_floor_is_the_cross_entropy_of_the_mean() -> None:
    found = probe_distribution(NOISE, SHARES, seed=3)
    order = np.random.default_rng(3).permutation(S)
    test, train = order[: S // 4], order[S // 4 :]
    mean = SHARES[train].mean(axis=0)
    assert found.floor == pytest.approx(-(SHARES[test] * np.log(mean)).sum(axis=1).mean(), rel=1e-12)
    assert found.best == pytest.approx(-(SHARES[test] * np.log(SHARES[test])).sum(axis=1).mean(), rel=1e-12)


def test_ridge_equals_scikit_learns() -> None:
    from sklearn.linear_model import Ridge
    from sklearn.metrics import r2_score

    targets = SIGNAL[:, :3] @ DRAW.standard_normal((3, 4)) + 0.3 * DRAW.standard_normal((S, 4))
    found = probe_regression(SIGNAL, targets)
    order = np.random.default_rng(0).permutation(S)
    test, train = order[: S // 4], order[S // 4 :]
    inputs = (SIGNAL - SIGNAL[train].mean(axis=0)) / SIGNAL[train].std(axis=0)
    predicted = Ridge(alpha=1.0).fit(inputs[train], targets[train]).predict(inputs[test])
    # scikit-learn's R² takes the test sentences' own mean as floor, ours that of the training sentences: nearly the same.
    assert found == pytest.approx(r2_score(targets[test], predicted, multioutput="variance_weighted"), abs=0.02)
    errors = ((targets[test] - predicted) ** 2).sum() / ((targets[test] - targets[train].mean(axis=0)) ** 2).sum()
    assert found == pytest.approx(1 - errors, rel=1e-9)
    assert found > 0.7
    assert probe_regression(NOISE, targets) < 0.05


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
    first, second, relations, gold = draw(30, 4), draw(30, 4, seed=1), draw(2, 4, seed=2), draw(30, seed=3)
    for directions in ["one", "max_both"]:
        points = [np.array([1.0, weight]) for weight in (0, 0.5, 2)]
        curve = weight_curve(
            first, second, relations, points, score=lambda similarities: spearman(similarities, gold), directions=directions
        )
        for weights, found in zip(points, curve, strict=True):
            similarities = relational_similarities(first, second, relations, weights, directions=directions)
            assert found == pytest.approx(spearman(similarities, gold), abs=1e-9)
        assert len(set(curve)) == 3


def test_ranks_by_hand() -> None:
    """One head along the first axis; tails at rising angles to it; the true one is third."""
    tails = np.array([[np.cos(angle), np.sin(angle)] for angle in (0.1, 0.2, 0.3, 0.4)])

    def ranked(*known: tuple[int, int]) -> LinkPrediction:
        return rank_links(
            link_similarities([[1.0, 0.0]], tails), num_tails=4, tail=np.array([2]), relation=np.array([0]), names=("a",),
            known=np.array(known, dtype=np.int64).reshape(-1, 2), pool="all",
        )  # fmt: skip

    found = ranked()
    assert found.ranks.tolist() == [3.0]
    assert found.overall.mrr == pytest.approx(100 / 3)
    assert found.overall.hits == {1: 0.0, 3: 100.0, 10: 100.0}
    filtered = ranked((0, 0))
    assert filtered.ranks.tolist() == [2.0] and filtered.overall.num_candidates == 3.0
    alone = ranked((0, 0), (0, 1), (0, 3))
    assert (alone.overall.mrr, alone.overall.num_candidates) == (100.0, 1.0)
