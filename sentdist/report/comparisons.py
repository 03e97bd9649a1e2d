"""Which systems of a table differ, task by task: the test over seeds where there are seeds, the one over items where there are items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sentdist.evaluation.significance import Difference, compare_seeds, compare_with_fixed, holm
from sentdist.report.items import ItemScores
from sentdist.report.rows import SystemRows

AVERAGE = "Avg"
Relation = Literal["baseline", "preceding"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One system against another, by task and on average.

    Each family of tasks is Holm-corrected by itself; the average is one hypothesis of its own and is not corrected.
    over_seeds: what another training run would show. over_items: what other test sentences would show of these very runs, by the bootstrap.
    williams: the same by Williams' test, where the score is a correlation (the average is none).
    """

    system: str
    other: str
    relation: Relation
    over_seeds: Mapping[str, Difference]
    over_items: Mapping[str, Difference]
    williams: Mapping[str, Difference]

    def decisive(self, column: str) -> Difference | None:
        """The difference that marks go by: over seeds where both sides allow it, else over items, else untested with its reason."""
        seeds = self.over_seeds.get(column)
        return self.over_items.get(column, seeds) if seeds is None or seeds.p is None else seeds


def compare(system: SystemRows, other: SystemRows, *, relation: Relation, tasks: Sequence[str], items: ItemScores) -> Comparison:
    """Test `system` minus `other`, over seeds and over items."""
    over_seeds = {task: found for task in tasks if (found := _over_seeds(system, other, system.scores(task), other.scores(task)))}
    over_items = {task: found for task in tasks if (found := items.bootstrap(system.label, other.label, (task,)))}
    williams = {task: found for task in tasks if (found := items.williams(system.label, other.label, task))}
    over_seeds, over_items, williams = _corrected(over_seeds), _corrected(over_items), _corrected(williams)
    average = _over_seeds(system, other, system.averages(tasks), other.averages(tasks))
    if average:
        over_seeds[AVERAGE] = average
    average = items.bootstrap(system.label, other.label, tasks)
    if average:
        over_items[AVERAGE] = average
    return Comparison(
        system=system.label, other=other.label, relation=relation, over_seeds=over_seeds, over_items=over_items, williams=williams
    )


def tell_apart(system: SystemRows, other: SystemRows, *, tasks: Sequence[str], items: ItemScores) -> Difference | None:
    """The one test that decides over a task, or the average of several, by itself:
    over seeds where both sides allow it, else over items."""
    ours, theirs = (one.averages(tasks) if len(tasks) > 1 else one.scores(tasks[0]) for one in (system, other))
    seeds = _over_seeds(system, other, ours, theirs)
    return seeds if seeds is not None and seeds.p is not None else items.bootstrap(system.label, other.label, tasks) or seeds


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


def _corrected(family: dict[str, Difference]) -> dict[str, Difference]:
    adjusted = holm([difference.p for difference in family.values()])
    return {task: replace(difference, adjusted_p=p) for (task, difference), p in zip(family.items(), adjusted, strict=True)}
