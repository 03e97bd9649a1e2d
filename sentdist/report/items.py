"""What the test items say of a table's systems: their scores on resamples of the items, and how their scores of the items correlate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from sentdist.errors import DataError
from sentdist.evaluation.bootstrap import (
    NUM_RESAMPLES,
    Resampled,
    average_resampled,
    paired_difference,
    resample_mean,
    resample_spearman,
)
from sentdist.evaluation.significance import Difference, compare_correlations
from sentdist.report.rows import SystemRows, TaskItems, read_items

# Items ranked anew that a table may cost, some 4 s of one core. Four rows over the seven STS tasks have all 10,000 resamples,
# forty a thousand: the ends of their intervals are then known to some 4 % of the width.
MOST_RANKED = 8 * 10**8
FEWEST_RESAMPLES = 300  # p can still fall below 5 % after Holm's correction over seven tasks


@dataclass(frozen=True, kw_only=True, eq=False)
class Correlations:
    """Spearman's correlations in [-1, 1] of K systems on one task's S items, each the mean over the systems' runs."""

    with_gold: Mapping[str, float]
    between: Mapping[tuple[str, str], float]
    num_items: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemScores:
    """By (label, task) resampled scores, by task correlations; what has no items, or gives all of them one value, is left out."""

    resampled: Mapping[tuple[str, str], Resampled]
    correlations: Mapping[str, Correlations]
    num_resamples: int

    def resampled_score(self, label: str, tasks: Sequence[str]) -> Resampled | None:
        """The score of a task, or the average over several; None where a task has no items."""
        if not tasks or any((label, task) not in self.resampled for task in tasks):
            return None
        return average_resampled([self.resampled[label, task] for task in tasks])

    def bootstrap(self, system: str, other: str, tasks: Sequence[str]) -> Difference | None:
        """The paired bootstrap of the score, or of the average over several tasks."""
        ours, theirs = self.resampled_score(system, tasks), self.resampled_score(other, tasks)
        if ours is None or theirs is None:
            return None
        found = paired_difference(ours, theirs)
        return Difference(difference=found.difference, low=found.low, high=found.high, p=found.p, adjusted_p=None, test="bootstrap")

    def williams(self, system: str, other: str, task: str) -> Difference | None:
        """Williams' test of the two correlations with gold; of systems with several runs, that of a typical pair of runs."""
        known = self.correlations.get(task)
        if known is None or not {system, other} <= known.with_gold.keys():
            return None
        return compare_correlations(
            known.with_gold[system], known.with_gold[other], known.between[system, other], num_items=known.num_items
        )


def item_scores(systems: Sequence[SystemRows], tasks: Sequence[str], *, num_resamples: int = NUM_RESAMPLES) -> ItemScores:
    """Read the items of every system and task once and resample them.

    `num_resamples` is lowered where systems are many (see MOST_RANKED); `ItemScores` says to how many.

    Raises:
        DataError: two systems were scored on different items of a task.
    """
    found = {task: with_items for task in tasks if (with_items := _items_by_label(systems, task))}
    ranked = sum(len(run.values) for by_label in found.values() for runs in by_label.values() for run in runs)
    num_resamples = min(num_resamples, max(FEWEST_RESAMPLES, MOST_RANKED // max(1, ranked)))
    resampled: dict[tuple[str, str], Resampled] = {}
    correlations: dict[str, Correlations] = {}
    for task, by_label in found.items():
        _check_same_items(task, by_label)
        values_KS = np.stack([run.values for runs in by_label.values() for run in runs])
        gold_S = next(iter(by_label.values()))[0].gold
        # Each task draws by a seed of its own, so that the average may treat tasks as independent.
        draw_seed = tasks.index(task)
        if gold_S is None:
            scores = iter(resample_mean(values_KS, num_resamples=num_resamples, seed=draw_seed))
        else:
            scores = iter(resample_spearman(values_KS, gold_S, num_resamples=num_resamples, seed=draw_seed))
            correlations[task] = _correlations(values_KS, gold_S, {label: len(runs) for label, runs in by_label.items()})
        for label, runs in by_label.items():
            resampled[label, task] = average_resampled([next(scores) for _ in runs])
    return ItemScores(resampled=resampled, correlations=correlations, num_resamples=num_resamples)


def _correlations(values_KS: NDArray[np.float64], gold_S: NDArray[np.float64], num_runs: Mapping[str, int]) -> Correlations:
    ranks = rankdata(np.vstack([gold_S, values_KS]), axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    ranks /= np.linalg.norm(ranks, axis=1, keepdims=True)
    of_runs = np.clip(ranks @ ranks.T, -1.0, 1.0)
    runs_K = np.array([1, *num_runs.values()])
    starts_K = np.cumsum(runs_K) - runs_K
    sums_KK = np.add.reduceat(np.add.reduceat(of_runs, starts_K, axis=0), starts_K, axis=1)
    means = (sums_KK / np.outer(runs_K, runs_K)).tolist()
    places = list(enumerate(num_runs, start=1))
    return Correlations(
        with_gold={label: means[0][place] for place, label in places},
        between={(one, other): means[row][column] for row, one in places for column, other in places if row != column},
        num_items=len(gold_S),
    )


def _items_by_label(systems: Sequence[SystemRows], task: str) -> dict[str, list[TaskItems]]:
    return {system.label: items for system in systems if (items := _items_of(system, task))}


def _items_of(system: SystemRows, task: str) -> list[TaskItems]:
    items = [read_items(row, task) for row in system.rows]
    usable = [item for item in items if item is not None and (item.gold is None or np.ptp(item.values) > 0)]
    return usable if len(usable) == len(items) else []


def _check_same_items(task: str, items: Mapping[str, Sequence[TaskItems]]) -> None:
    labelled = [(label, seed) for label, seeds in items.items() for seed in seeds]
    first_label, first = labelled[0]
    for label, seed in labelled[1:]:
        same_gold = (first.gold is None) == (seed.gold is None) and (
            first.gold is None or seed.gold is None or np.array_equal(first.gold, seed.gold)
        )
        if len(first.values) != len(seed.values) or not same_gold:
            raise DataError(
                where=f"report: items of {task!r}",
                found=f"{len(first.values)} items for {first_label!r}, {len(seed.values)} for {label!r}, or other gold scores",
                expected="one and the same test set",
                remedy="The task's file has changed between two evaluations: evaluate the older encoder again.",
            )
