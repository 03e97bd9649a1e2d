"""What the kept items of a task say of its score: what each adds, which belong together, and which test set they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentdist.errors import DataError, counted
from sentdist.evaluation import contributions
from sentdist.evaluation.joint_groups import linked

STRATUM = "stratum"  # the column of items of a score that is a mean over parts of their means
GROUP = "group"  # the column of items that says which belong together
SHARED = "shared"  # that of items which have texts in common with those of other tasks: equal numbers belong together, -1 has none
NAMES = ("query_id", "row", "label", "predicted")  # columns of items that name or describe them
MAIN_MEASURES = ("accuracy", "map")  # of files that have several measures, the one that a task's own name means
Columns = Mapping[str, NDArray[Any]]
_NUMBERS = 1 << 32  # of what is shared within a fold: more than a test set has texts


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """The I test items of one encoder's score.

    contributions: (I,) in points, 0 in sum over each part. weights: (I,) share of each in the score, 1 in sum. parts: (I,) of a score that
    is a mean over parts, which one, from 0. groups: (I,) what they belong to; an item of a file without the column stands for itself.
    identity: what two encoders' items have in common if they are those of one test set. shared: (I,) what they have in common with items of
    other tasks, as numbers of this very evaluation; -1 for nothing.
    """

    contributions: NDArray[np.float64]
    weights: NDArray[np.float64]
    parts: NDArray[np.intp]
    groups: NDArray[Any]
    identity: NDArray[Any]
    shared: NDArray[np.int64]
    has_groups: bool

    def by_group(self) -> NDArray[np.float64]:
        """(G,) contributions of groups: stratum by stratum, in the order of their names."""
        return self._sums(self.contributions)

    def shared_by_group(self) -> NDArray[np.int64]:
        """(L, 2) each group, by its place in that order, with each number that it has in common with other tasks; of one evaluation these
        are one for all tasks."""
        has_any = self.shared >= 0
        return np.unique(np.stack([self._place[has_any], self.shared[has_any]], axis=1).astype(np.int64), axis=0)

    def group_weights(self) -> NDArray[np.float64]:
        """(G,) shares of groups in the score."""
        return self._sums(self.weights)

    @cached_property
    def strata(self) -> NDArray[np.intp]:
        """(G,) of each group, 0, 1, … in ascending order: groups of one part vary by themselves; parts that have groups in common are one
        stratum."""
        strata = np.zeros(int(self._place.max(initial=-1)) + 1, dtype=np.intp)
        strata[self._place] = self._stratum
        return strata

    @cached_property
    def _stratum(self) -> NDArray[np.intp]:
        """(I,)"""
        if not self.parts.any():
            return np.zeros(len(self.parts), dtype=np.intp)
        _, group = np.unique(self.groups, return_inverse=True)
        return linked(self.parts, group, int(self.parts.max()) + 1)[self.parts]

    @cached_property
    def _place(self) -> NDArray[np.intp]:
        """(I,) the place of each item's group."""
        _, group = np.unique(self.groups, return_inverse=True)
        _, place = np.unique(np.stack([self._stratum, group]), axis=1, return_inverse=True)
        return place.astype(np.intp)

    def _sums(self, values_I: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(self._place, weights=values_I), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One encoder, wherever it was scored. scores: task -> main score × 100, None where it is not defined. items: task -> its files of
    items (several: parts of equal weight, whose mean is the score)."""

    scores: Mapping[str, float | None]
    items: Mapping[str, tuple[Path, ...]]


def items_of(columns: Columns, *, task: str, where: str) -> Items | None:
    """The items of a task from the columns of its file; None where its score has no derivative, for all items got one value.

    task: its name; `bank:map` or `mrpc:f1` means this measure, a name alone the main one. Raises DataError for a file without it.
    """
    found = _contributions(_in_points(columns), task, where)
    if found is None:
        return None
    added, identity = found
    size = len(added)
    return Items(
        contributions=added,
        weights=contributions.strata_weights(columns[STRATUM]) if STRATUM in columns else np.full(size, 1.0 / size),
        parts=np.unique(columns[STRATUM], return_inverse=True)[1] if STRATUM in columns else np.zeros(size, dtype=np.intp),
        groups=columns.get(GROUP, np.arange(size)),
        identity=identity,
        shared=columns.get(SHARED, np.full(size, -1, dtype=np.int64)),
        has_groups=GROUP in columns,
    )


def why_undefined(columns: Columns) -> str:
    """Why the items of a file have no score, to stand behind a colon."""
    if "similarity" in columns:
        gold, noun = (columns["score"], "gold score") if "score" in columns else (columns["label"], "label")
        if (said := _without_spread(gold, noun)) is not None:
            return said
        subsets = columns.get("subset", np.zeros(0))
        for name in np.unique(subsets):
            if (said := _without_spread(gold[subsets == name], noun)) is not None:
                return f"{said} of subset {name}"
        return "the encoder gives all pairs one similarity"
    if "cluster" in columns:
        return "the encoder gives the texts fewer different embeddings than there are labels"
    return "the encoder gives the candidates of each query one score" if "query_id" in columns else "it is not defined for these items"


def _without_spread(gold: NDArray[Any], noun: str) -> str | None:
    """What is wrong with gold scores or labels that are all one; None where they differ."""
    if len(gold) > 1 and np.ptp(gold) > 0:
        return None
    return f"no two different {noun}s among its {counted(len(gold), 'pair')}"


def joined(folds: Sequence[Items]) -> Items:
    """The items of folds, whose mean is the score: each is a part of it."""
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
        return (contributions.of_spearman(similarities, gold), gold) if np.ptp(similarities) > 0 and np.ptp(gold) > 0 else None
    if {"label", "similarity"} <= columns.keys():
        similarities, labels = columns["similarity"], columns["label"]
        is_defined = np.ptp(similarities) > 0 and np.ptp(labels) > 0
        return (contributions.of_average_precision(similarities, labels), labels) if is_defined else None
    if {"label", "cluster"} <= columns.keys():
        clusters, labels = columns["cluster"], columns["label"]
        return (contributions.of_v_measure(clusters, labels), labels) if len(np.unique(clusters)) > 1 < len(np.unique(labels)) else None
    measures = [name for name in columns if name not in (*NAMES, STRATUM, GROUP, SHARED)]
    main = next((name for name in (*MAIN_MEASURES, *measures) if name in measures), task)
    measure = task.rpartition(":")[2] if ":" in task else main
    if measure == "f1" and {"label", "predicted"} <= columns.keys():
        positive = max(columns["label"])  # the later of two labels, as the score has it
        return contributions.of_f1(columns["predicted"] == positive, columns["label"] == positive), columns["label"]
    if measure not in columns:
        raise DataError(
            where=where,
            found=f"columns {sorted(columns)}",
            expected=f'"similarity" and "score", or "{measure}"',
            remedy="Score this encoder again with this version of the project.",
        )
    named = next((name for name in ("query_id", "row", "label") if name in columns), None)
    added = contributions.of_strata(columns[measure], columns[STRATUM]) if STRATUM in columns else contributions.of_mean(columns[measure])
    return added, np.arange(len(columns[measure])) if named is None else columns[named]
