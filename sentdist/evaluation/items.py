"""Read the kept items of a task: contribution of each to the score, groups of dependent items, identity of the test set."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import xlogy

from sentdist.errors import DataError


def of_mean(values: ArrayLike) -> NDArray[np.float64]:
    """Return contributions to a mean over items (accuracy, MAP, nDCG …); values are × 100 already."""
    values_I = np.asarray(values, dtype=np.float64)
    return (values_I - values_I.mean()) / len(values_I)


def of_strata(values: ArrayLike, strata: ArrayLike) -> NDArray[np.float64]:
    """Return contributions to a mean over strata of the means over their items; values are × 100 already."""
    values_I = np.asarray(values, dtype=np.float64)
    _, place, size = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=values_I) / size
    return np.asarray((values_I - means[place]) * strata_weights(strata), dtype=np.float64)


def strata_weights(strata: ArrayLike) -> NDArray[np.float64]:
    """Return the (I,) share of each item in a mean over strata."""
    _, place, size = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (len(size) * size[place]), dtype=np.float64)


def of_spearman(similarities: ArrayLike, gold: ArrayLike) -> NDArray[np.float64]:
    """Return contributions to Spearman's correlation × 100, ties at their mean rank; both lists must have a spread.

    An item counts in Pearson's formula and moves the ranks of all items above it: with ranks u, v in units of their spread,
    uᵢvᵢ − ρ(uᵢ² + vᵢ²)/2, and for either list the sum of (v − ρu) over the items above i, half of those beside it.
    """
    first, second = _Ranks(np.asarray(similarities, dtype=np.float64)), _Ranks(np.asarray(gold, dtype=np.float64))
    u, v = first.standard, second.standard
    rho = float(np.mean(u * v))
    direct = u * v - rho / 2 * (u * u + v * v)
    return 100.0 * (direct + first.above(v - rho * u) / first.spread + second.above(u - rho * v) / second.spread) / len(u)


def of_average_precision(similarities: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Return contributions to average precision × 100 over pairs with labels 0 and 1 (both must occur), ties taken together."""
    labels_I = np.asarray(labels, dtype=np.float64)
    _, place, size = np.unique(-np.asarray(similarities, dtype=np.float64), return_inverse=True, return_counts=True)
    positive = np.bincount(place, weights=labels_I)
    reached, among = np.cumsum(positive), np.cumsum(size)
    precision, total = reached / among, positive.sum()
    score = float(np.sum(positive * precision) / total)
    below = _from_here_on(positive / among), _from_here_on(positive * reached / among**2)
    moved = labels_I * (precision[place] - score) + labels_I * below[0][place] - below[1][place]
    return 100.0 * moved / total


def of_v_measure(clusters: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Return contributions to the V-measure × 100 of clusters against labels, at least two of both; other items keep their clusters.

    V = 2 I / (H_clusters + H_labels) with I the mutual information in nats (Rosenberg & Hirschberg 2007, β = 1). By the
    jackknife (Efron 1982, ch. 2), not by derivatives: many pairs of cluster and label have one or two items, where entropy is far from
    linear. With derivatives equal encoders differed in 10 to 16 % of simulated cases of 3 to 77 labels.
    """
    clusters_I, labels_I = (np.unique(np.asarray(one), return_inverse=True)[1] for one in (clusters, labels))
    joint_I = clusters_I * (int(labels_I.max()) + 1) + labels_I
    of_clusters, of_labels, of_both = (_entropies_without(one) for one in (clusters_I, labels_I, joint_I))
    both = of_clusters + of_labels
    is_split = both > 1e-12  # else one cluster of one label is left, and V is 1
    left = np.where(is_split, 200.0 * (1.0 - of_both / np.where(is_split, both, 1.0)), 100.0)
    return (left.mean() - left) * (len(left) - 1) / len(left)


class _Ranks:
    """The mean ranks of a list: standardized, with their spread as a share of the list, and sums over the items above."""

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


@dataclass(frozen=True, kw_only=True, eq=False)
class JointGroups:
    """The concatenated groups of several tasks as the J groups of their mean.

    Args:
        place: (G,) joint group of each group.
        strata: (J,) stratum of each joint group, 0, 1, … ascending.
        tasks: tasks that share groups with others.
    """

    place: NDArray[np.intp]
    strata: NDArray[np.intp]
    tasks: tuple[int, ...]

    def sums(self, values_G: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (J,) sums over the parts of each joint group."""
        return np.bincount(self.place, weights=values_G, minlength=len(self.strata)).astype(np.float64)


def joint_groups(strata: Sequence[NDArray[np.intp]], shared: Sequence[NDArray[np.int64]]) -> JointGroups:
    """Join the groups that tasks share, since their contributions to these tasks vary together.

    If all items of a task end up in one group, everything becomes one group, since its variance is unknown.

    Args:
        strata: for each task, (G,) stratum of each of its groups.
        shared: for each task, (L, 2) index of a group and a number; groups with equal numbers are joined, and so are their strata.
    """
    starts = np.cumsum([0, *(len(one) for one in strata)])
    total, task_of = int(starts[-1]), np.repeat(np.arange(len(strata)), np.diff(starts))
    own = end_to_end(strata)
    groups = np.concatenate([start + pairs[:, 0] for start, pairs in zip(starts[:-1], shared, strict=True)]).astype(np.intp)
    _, numbers = np.unique(np.concatenate([pairs[:, 1] for pairs in shared]), return_inverse=True)
    of_group = linked(groups, numbers, total)
    stratum_of = linked(own, of_group, int(own.max(initial=-1)) + 1)[own]
    several = [one for one in np.unique(stratum_of) if np.ptp(task_of[stratum_of == one])]
    joined = np.unique(task_of[np.isin(stratum_of, several)]).tolist()
    _, first, names = np.unique(of_group, return_index=True, return_inverse=True)
    joint_strata = stratum_of[first]
    order = np.lexsort((first, joint_strata))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    place = rank[names]
    if any(np.ptp(place[start:end]) == 0 for start, end in itertools.pairwise(starts)):
        return JointGroups(place=np.zeros_like(place), strata=np.zeros(1, dtype=np.intp), tasks=tuple(joined))
    return JointGroups(place=place, strata=joint_strata[order], tasks=tuple(joined))


def end_to_end(strata: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    """Return the concatenated strata of several tasks, renumbered so that no two tasks share a number."""
    firsts = np.cumsum([0, *(int(one.max(initial=-1)) + 1 for one in strata[:-1])])
    return np.concatenate([first + one for first, one in zip(firsts, strata, strict=True)])


def linked(ones: NDArray[np.intp], others: NDArray[np.intp], num_ones: int) -> NDArray[np.intp]:
    """Return the (num_ones,) connected component of each, numbered 0, 1, … in order of first appearance."""
    size = num_ones + int(others.max(initial=-1)) + 1
    _, found = connected_components(coo_array((np.ones(len(ones)), (ones, num_ones + others)), shape=(size, size)), directed=False)
    _, first, names = np.unique(found[:num_ones], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[names]


STRATUM = "stratum"  # column: part of an item, if the score is a mean over means of parts
GROUP = "group"  # column: items with equal values belong together
SHARED = "shared"  # column: items with equal numbers share texts across tasks; -1: none
NAMES = ("query_id", "row", "label", "predicted")  # columns that name or describe items
MAIN_MEASURES = ("accuracy", "map")  # main measure of files with several measures
Columns = Mapping[str, NDArray[Any]]
_NUMBERS = 1 << 32  # numbers per fold: more than a test set has texts


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """The I test items of one encoder's score.

    Args:
        contributions: (I,) in points, 0 in sum over each part.
        weights: (I,) share of each in the score, 1 in sum.
        parts: (I,) part of each, from 0, in a score that is a mean over parts.
        groups: (I,) group of each; every item is its own group in files without the column.
        identity: (I,) values that are equal for two encoders scored on one test set.
        shared: (I,) numbers, within this evaluation, of texts shared with other tasks; -1: none.
    """

    contributions: NDArray[np.float64]
    weights: NDArray[np.float64]
    parts: NDArray[np.intp]
    groups: NDArray[Any]
    identity: NDArray[Any]
    shared: NDArray[np.int64]
    has_groups: bool

    def by_group(self) -> NDArray[np.float64]:
        """Return (G,) contributions of groups: stratum by stratum, in the order of their names."""
        return self._sums(self.contributions)

    def shared_by_group(self) -> NDArray[np.int64]:
        """Return (L, 2) index of a group in that order and a number that it shares with other tasks of the evaluation."""
        has_any = self.shared >= 0
        return np.unique(np.stack([self._place[has_any], self.shared[has_any]], axis=1).astype(np.int64), axis=0)

    def group_weights(self) -> NDArray[np.float64]:
        """Return (G,) shares of groups in the score."""
        return self._sums(self.weights)

    @cached_property
    def strata(self) -> NDArray[np.intp]:
        """(G,) stratum of each group, 0, 1, … ascending: a stratum is a part, or several parts that share groups."""
        strata = np.zeros(int(self._place.max(initial=-1)) + 1, dtype=np.intp)
        strata[self._place] = self._stratum
        return strata

    @cached_property
    def _stratum(self) -> NDArray[np.intp]:
        """(I,) stratum of each item."""
        if not self.parts.any():
            return np.zeros(len(self.parts), dtype=np.intp)
        _, group = np.unique(self.groups, return_inverse=True)
        return linked(self.parts, group, int(self.parts.max()) + 1)[self.parts]

    @cached_property
    def _place(self) -> NDArray[np.intp]:
        """(I,) index of each item's group."""
        _, group = np.unique(self.groups, return_inverse=True)
        _, place = np.unique(np.stack([self._stratum, group]), axis=1, return_inverse=True)
        return place.astype(np.intp)

    def _sums(self, values_I: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(self._place, weights=values_I), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A scored encoder.

    Args:
        scores: task -> main score × 100; None: not defined.
        items: task -> its files of items (several files: parts of equal weight, whose mean is the score).
    """

    scores: Mapping[str, float | None]
    items: Mapping[str, tuple[Path, ...]]


def items_of(columns: Columns, *, task: str, where: str) -> Items | None:
    """Return the items of a task from the columns of its file; None if the score is undefined because all items have one value.

    Args:
        task: name, for the main measure, or NAME:MEASURE (`bank:ndcg@10`).

    Raises:
        DataError: the file lacks the measure.
    """
    found = _contributions(_in_points(columns), task, where)
    if found is None:
        return None
    added, identity = found
    size = len(added)
    return Items(
        contributions=added, weights=strata_weights(columns[STRATUM]) if STRATUM in columns else np.full(size, 1.0 / size),
        parts=np.unique(columns[STRATUM], return_inverse=True)[1] if STRATUM in columns else np.zeros(size, dtype=np.intp),
        groups=columns.get(GROUP, np.arange(size)), identity=identity, shared=columns.get(SHARED, np.full(size, -1, dtype=np.int64)),
        has_groups=GROUP in columns,
    )  # fmt: skip


def joined(folds: Sequence[Items]) -> Items:
    """Return the items of folds as parts of one score, the mean over folds."""
    if len(folds) == 1:
        return folds[0]
    has_groups = all(fold.has_groups for fold in folds)
    starts = np.cumsum([0, *(len(fold.weights) for fold in folds[:-1])])
    first_parts = np.cumsum([0, *(int(fold.parts.max(initial=0)) + 1 for fold in folds[:-1])])
    return Items(
        contributions=np.concatenate([fold.contributions for fold in folds]) / len(folds),
        weights=np.concatenate([fold.weights for fold in folds]) / len(folds),
        parts=np.concatenate([first + fold.parts for fold, first in zip(folds, first_parts, strict=True)]),
        groups=np.concatenate([fold.groups if has_groups else start + np.arange(len(fold.weights)) for fold, start in zip(folds, starts,
        strict=True)]), identity=np.concatenate([fold.identity for fold in folds]),
        shared=np.concatenate([np.where(fold.shared < 0, -1, number * _NUMBERS + fold.shared) for number, fold in enumerate(folds)]),
        has_groups=has_groups,
    )  # fmt: skip


def _in_points(columns: Columns) -> Columns:
    """Accuracies are 0 or 100 an item; older files of triplets have 0 or 1."""
    accuracy = columns.get("accuracy")
    return columns if accuracy is None or accuracy.max(initial=0.0) != 1.0 else {**columns, "accuracy": 100.0 * accuracy}


def _contributions(columns: Columns, task: str, where: str) -> tuple[NDArray[np.float64], NDArray[Any]] | None:
    """(I,) contributions, and what identifies the items: gold scores, labels or names of queries."""
    if {"similarity", "score"} <= columns.keys():
        similarities, gold = columns["similarity"], columns["score"]
        return (of_spearman(similarities, gold), gold) if np.ptp(similarities) > 0 and np.ptp(gold) > 0 else None
    if {"label", "similarity"} <= columns.keys():
        similarities, labels = columns["similarity"], columns["label"]
        is_defined = np.ptp(similarities) > 0 and np.ptp(labels) > 0
        return (of_average_precision(similarities, labels), labels) if is_defined else None
    if {"label", "cluster"} <= columns.keys():
        clusters, labels = columns["cluster"], columns["label"]
        return (of_v_measure(clusters, labels), labels) if len(np.unique(clusters)) > 1 < len(np.unique(labels)) else None
    measures = [name for name in columns if name not in (*NAMES, STRATUM, GROUP, SHARED)]
    main = next((name for name in (*MAIN_MEASURES, *measures) if name in measures), task)
    measure = task.rpartition(":")[2] if ":" in task else main
    if measure not in columns:
        raise DataError(
            where=where, found=f"columns {sorted(columns)}", expected=f'"similarity" and "score", or "{measure}"',
            remedy="Score this encoder again with this version of the project.",
        )  # fmt: skip
    named = next((name for name in ("query_id", "row", "label") if name in columns), None)
    added = of_strata(columns[measure], columns[STRATUM]) if STRATUM in columns else of_mean(columns[measure])
    return added, np.arange(len(columns[measure])) if named is None else columns[named]
