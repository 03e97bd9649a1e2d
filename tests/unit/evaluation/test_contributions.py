"""What items add to a score: the derivatives are those of the measures as libraries compute them with weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, f1_score, v_measure_score

from sentdist.evaluation import items as contributions

COPIES = 200  # of all items but one: an item more is then a small step of its weight


def _data(kind: str, size: int = 40) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    generator = np.random.default_rng(3)
    gold = np.round(generator.uniform(0, 5, size))
    found = np.round(gold + generator.normal(0, 2, size), 1 if kind == "spearman" else 0)
    return (found, gold) if kind == "spearman" else (found, (gold > 2).astype(float))


MEASURES: dict[str, tuple[Callable[..., NDArray[np.float64]], Callable[[NDArray[np.float64], NDArray[np.float64]], float]]] = {
    "spearman": (contributions.of_spearman, lambda found, gold: spearmanr(found, gold).statistic),
    "ap": (contributions.of_average_precision, lambda found, gold: average_precision_score(gold, found)),
    "f1": (lambda found, gold: contributions.of_f1(found > 2, gold), lambda found, gold: f1_score(gold, found > 2)),
    "mean": (lambda found, gold: contributions.of_mean(100 * found), lambda found, gold: float(np.mean(found))),
}


def test_an_item_of_a_clustering_adds_what_is_lost_without_it() -> None:
    found, gold = _data("v")
    without = np.array([100 * v_measure_score(np.delete(gold, item), np.delete(found, item)) for item in range(len(gold))])
    expected = (without.mean() - without) * (len(gold) - 1) / len(gold)
    np.testing.assert_allclose(contributions.of_v_measure(found, gold), expected, atol=1e-10)


def test_a_clustering_that_one_item_splits_has_all_of_its_score_from_it() -> None:
    """Without the last item one cluster of one label is left: a V-measure of 1; with it, 1 too."""
    np.testing.assert_allclose(contributions.of_v_measure([0, 0, 0, 1], [0, 0, 0, 1]), 0.0, atol=1e-10)
    added = contributions.of_v_measure([0, 0, 0, 0, 1], [0, 0, 0, 1, 0])
    assert np.isfinite(added).all() and abs(added.sum()) < 1e-9


@pytest.mark.parametrize("name", list(MEASURES))
def test_an_item_more_moves_the_score_by_its_contribution(name: str) -> None:
    """All items COPIES times and one of them once more, against the derivative; ties in all lists."""
    found, gold = _data(name)
    contribution, score = MEASURES[name]
    many_found, many_gold = np.tile(found, COPIES), np.tile(gold, COPIES)
    before = score(many_found, many_gold)
    moved = [score(np.append(many_found, one), np.append(many_gold, other)) - before for one, other in zip(found, gold, strict=True)]
    expected = contribution(found, gold) / 100 / COPIES
    np.testing.assert_allclose(moved, expected, rtol=0.05, atol=np.abs(expected).max() * 0.02)  # the second derivative is left
    assert abs(expected.sum()) < 1e-12


def test_their_squares_sum_to_the_variance_of_a_bootstrap() -> None:
    generator = np.random.default_rng(0)
    gold = generator.uniform(0, 5, 400)
    found = gold + generator.normal(0, 2, 400)
    drawn = [generator.integers(0, 400, 400) for _ in range(400)]
    spread = np.std([100 * spearmanr(found[rows], gold[rows]).statistic for rows in drawn])
    assert np.sqrt(np.sum(contributions.of_spearman(found, gold) ** 2)) == pytest.approx(spread, rel=0.12)  # 400 draws know it to 3.5 %
