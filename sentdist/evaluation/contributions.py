"""What each test item adds to a score: the derivative of the score with respect to the item's weight, for every measure that reports test.

A score that is a mean over items is the sum of its items. Spearman's correlation, average precision, F1 and the V-measure are not, but how
far they move when items are drawn again is, to first order, the same sum of derivatives (infinitesimal jackknife: Jaeckel 1972; Efron
1982, ch. 6; of the V-measure the jackknife itself). So one test serves all measures. All functions give (I,) numbers in points (score ×
100) that sum to 0: the variance of the score over other independent items is close to the sum of their squares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy


def of_mean(values: ArrayLike) -> NDArray[np.float64]:
    """Contributions to a mean over items: accuracy, or MAP, nDCG and reciprocal rank over queries; values × 100 already."""
    values_I = np.asarray(values, dtype=np.float64)
    return (values_I - values_I.mean()) / len(values_I)


def of_strata(values: ArrayLike, strata: ArrayLike) -> NDArray[np.float64]:
    """Contributions to a mean over strata of the means over their items; values × 100 already."""
    values_I = np.asarray(values, dtype=np.float64)
    _, place, size = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=values_I) / size
    return np.asarray((values_I - means[place]) * strata_weights(strata), dtype=np.float64)


def strata_weights(strata: ArrayLike) -> NDArray[np.float64]:
    """(I,) the share of each item in such a mean."""
    _, place, size = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (len(size) * size[place]), dtype=np.float64)


def of_spearman(similarities: ArrayLike, gold: ArrayLike) -> NDArray[np.float64]:
    """Contributions to Spearman's correlation × 100, ties at their mean rank; both lists must have a spread.

    An item weighs in Pearson's formula, and it moves the ranks of all that stand above it: with ranks u, v in units of their spread,
    uᵢvᵢ − ρ(uᵢ² + vᵢ²)/2, and for either list the sum of (v − ρu) over the items above i, half of those beside it.
    """
    first, second = _Ranks(np.asarray(similarities, dtype=np.float64)), _Ranks(np.asarray(gold, dtype=np.float64))
    u, v = first.standard, second.standard
    rho = float(np.mean(u * v))
    direct = u * v - rho / 2 * (u * u + v * v)
    return 100.0 * (direct + first.above(v - rho * u) / first.spread + second.above(u - rho * v) / second.spread) / len(u)


def of_average_precision(similarities: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Contributions to average precision × 100 over pairs with labels 0 and 1, pairs of one similarity taken together. Both labels must be
    there."""
    labels_I = np.asarray(labels, dtype=np.float64)
    _, place, size = np.unique(-np.asarray(similarities, dtype=np.float64), return_inverse=True, return_counts=True)
    positive = np.bincount(place, weights=labels_I)
    reached, among = np.cumsum(positive), np.cumsum(size)
    precision, total = reached / among, positive.sum()
    score = float(np.sum(positive * precision) / total)
    below = _from_here_on(positive / among), _from_here_on(positive * reached / among**2)
    moved = labels_I * (precision[place] - score) + labels_I * below[0][place] - below[1][place]
    return 100.0 * moved / total


def of_f1(predicted: ArrayLike, gold: ArrayLike) -> NDArray[np.float64]:
    """Contributions to F1 × 100, from what was said to be positive and what is; something must be positive in either."""
    said, true = np.asarray(predicted, dtype=np.float64), np.asarray(gold, dtype=np.float64)
    both, either = said * true, (said + true) / 2  # F1 = Σ both / Σ either
    return 100.0 * (both - either * both.sum() / either.sum()) / either.sum()


def of_v_measure(clusters: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Contributions to the V-measure × 100 of clusters against labels, at least two of both. The clusters of the other items
    stay as they are.

    V = 2 I / (H_clusters + H_labels) with I the mutual information in nats (Rosenberg & Hirschberg 2007, β = 1). Not its derivative but
    what it loses with each item left out (the jackknife: Efron 1982, ch. 2): many pairs of cluster and label have an item or two, where
    entropy is far from straight. By derivatives equal encoders differed in 10 to 16 % of made-up cases of 3 to 77 labels.
    """
    clusters_I, labels_I = (np.unique(np.asarray(one), return_inverse=True)[1] for one in (clusters, labels))
    joint_I = clusters_I * (int(labels_I.max()) + 1) + labels_I
    of_clusters, of_labels, of_both = (_entropies_without(one) for one in (clusters_I, labels_I, joint_I))
    both = of_clusters + of_labels
    is_split = both > 1e-12  # else one cluster of one label is left, and V is 1
    left = np.where(is_split, 200.0 * (1.0 - of_both / np.where(is_split, both, 1.0)), 100.0)
    return (left.mean() - left) * (len(left) - 1) / len(left)


class _Ranks:
    """The mean ranks of a list: standardized, with their spread as a share of the list, and sums over what stands above."""

    def __init__(self, values_I: NDArray[np.float64]) -> None:
        _, self._place, size = np.unique(values_I, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(size) - (size - 1) / 2)[self._place]
        self.spread = float(ranks.std()) / len(values_I)
        self.standard = (ranks - ranks.mean()) / ranks.std()

    def above(self, values_I: NDArray[np.float64]) -> NDArray[np.float64]:
        """(I,) the mean, over all items, of values of those above each item, and half of those beside it and its own."""
        of_place = np.asarray(np.bincount(self._place, weights=values_I), dtype=np.float64)
        return np.asarray((_from_here_on(of_place) - of_place / 2)[self._place] / len(values_I))


def _entropies_without(classes_I: NDArray[np.int64]) -> NDArray[np.float64]:
    """(I,) the entropy (nats) of a division into classes without each item."""
    _, place, size = np.unique(classes_I, return_inverse=True, return_counts=True)
    left = len(classes_I) - 1
    of_size = xlogy(size, size)
    return np.log(left) - (of_size.sum() + (xlogy(size - 1, size - 1) - of_size)[place]) / left


def _from_here_on(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.cumsum(values[::-1])[::-1]
