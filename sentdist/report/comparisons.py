"""Which systems of a table differ, task by task: the test over seeds where there are seeds, the one over items where there are items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sentdist.errors import DataError
from sentdist.evaluation.bootstrap import Resampled, average_resampled, paired_difference, resample_mean, resample_spearman
from sentdist.evaluation.significance import Difference, compare_seeds, compare_with_fixed, holm
from sentdist.report.rows import SystemRows, TaskItems, read_items

AVERAGE = "Avg"
Relation = Literal["baseline", "preceding", "best"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One system against another, by task and on average.

    Each family of tasks is Holm-corrected by itself; the average is one hypothesis of its own and is not corrected.
    over_seeds: what another training run would show. over_items: what other test sentences would show of these very runs.
    """

    system: str
    other: str
    relation: Relation
    over_seeds: Mapping[str, Difference]
    over_items: Mapping[str, Difference]

    def decisive(self, column: str) -> Difference | None:
        """The difference that marks go by: over seeds where both sides allow it, else over items, else untested with its reason."""
        seeds = self.over_seeds.get(column)
        return self.over_items.get(column, seeds) if seeds is None or seeds.p is None else seeds


def compare(
    system: SystemRows,
    other: SystemRows,
    *,
    relation: Relation,
    tasks: Sequence[str],
    resampled: Mapping[tuple[str, str], Resampled],
) -> Comparison:
    """Test `system` minus `other`; `resampled` holds (label, task) -> resampled score, from `resample_tasks`."""
    over_seeds = {task: found for task in tasks if (found := _over_seeds(system, other, system.scores(task), other.scores(task)))}
    over_items = {
        task: _over_items(resampled[system.label, task], resampled[other.label, task])
        for task in tasks
        if (system.label, task) in resampled and (other.label, task) in resampled
    }
    over_seeds, over_items = _corrected(over_seeds), _corrected(over_items)
    average = _over_seeds(system, other, system.averages(tasks), other.averages(tasks))
    if average:
        over_seeds[AVERAGE] = average
    if tasks and all(task in over_items for task in tasks):
        over_items[AVERAGE] = _over_items(*(average_resampled([resampled[one.label, task] for task in tasks]) for one in (system, other)))
    return Comparison(system=system.label, other=other.label, relation=relation, over_seeds=over_seeds, over_items=over_items)


def resample_tasks(systems: Sequence[SystemRows], tasks: Sequence[str], *, num_resamples: int) -> dict[tuple[str, str], Resampled]:
    """(label, task) -> the mean over seeds of the score, on resamples of the test items that all systems share.

    A system is left out of a task for which one of its seeds has no items or no ranking (all similarities equal).
    """
    resampled: dict[tuple[str, str], Resampled] = {}
    for number, task in enumerate(tasks):
        found = {system.label: _items_of(system, task) for system in systems}
        with_items = {label: items for label, items in found.items() if items}
        if not with_items:
            continue
        _check_same_items(task, with_items)
        values = np.stack([seed.values for items in with_items.values() for seed in items])
        gold = next(iter(with_items.values()))[0].gold
        # Each task draws by a seed of its own, so that the average may treat tasks as independent.
        if gold is None:
            scores = iter(resample_mean(values, num_resamples=num_resamples, seed=number))
        else:
            scores = iter(resample_spearman(values, gold, num_resamples=num_resamples, seed=number))
        for label, items in with_items.items():
            resampled[label, task] = average_resampled([next(scores) for _ in items])
    return resampled


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


def _over_seeds(system: SystemRows, other: SystemRows, scores: list[float], baseline: list[float]) -> Difference | None:
    if not scores or not baseline:
        return None
    if other.is_fixed and not system.is_fixed:
        return compare_with_fixed(scores, baseline[0])
    if system.is_fixed and not other.is_fixed:
        mirrored = compare_with_fixed(baseline, scores[0])
        low, high = mirrored.low, mirrored.high
        return replace(
            mirrored,
            difference=-mirrored.difference,
            low=None if high is None else -high,
            high=None if low is None else -low,
        )
    if system.is_fixed and other.is_fixed:
        return replace(compare_seeds(scores, baseline), reason="two fixed checkpoints: there are no seeds")
    return compare_seeds(scores, baseline)


def _over_items(system: Resampled, other: Resampled) -> Difference:
    found = paired_difference(system, other)
    return Difference(difference=found.difference, low=found.low, high=found.high, p=found.p, adjusted_p=None, test="bootstrap")


def _corrected(family: dict[str, Difference]) -> dict[str, Difference]:
    adjusted = holm([difference.p for difference in family.values()])
    return {task: replace(difference, adjusted_p=p) for (task, difference), p in zip(family.items(), adjusted, strict=True)}
