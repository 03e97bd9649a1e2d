"""What a sweep has scored: the results of each cell and seed, means over its folds, and the tasks of which a table shows the average."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sentdist.evaluation.means import mean_of_all
from sentdist.plan.stage import Json, as_number
from sentdist.plan.stages import Scores
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.store.record import Record
from sentdist.store.restored import restored
from sentdist.store.sweep import SweepRecord, TrialRecord, with_all_folds


@dataclass(frozen=True, kw_only=True)
class SeedResults:
    """A cell and seed all of whose folds have scores: a mean over fewer would be another number, of other test items.

    scores: the stage of the first fold. results: those that are numbers, means over folds; None where a fold has none.
    """

    cell: str
    seed: int | None
    trials: tuple[TrialRecord, ...]
    scores: Scores
    results: Mapping[str, float | None]

    def tasks(self, kind: str) -> list[str]:
        """Names of the tasks of a kind that have a main score, a user's own among them."""
        return [task.name for task in self.scores.tasks if task.kind == kind and task.name in self.results]


def scores_of(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, Scores]:
    """The scores of those of its trials that are finished, by key."""
    stages = {trial.key: restored(trial.key, records) for trial in sweep.trials}
    return {key: stage for key, stage in stages.items() if isinstance(stage, Scores)}


def seed_results(sweep: SweepRecord, records: Mapping[str, Record]) -> list[SeedResults]:
    """Every cell and seed all of whose folds have scores, in the order of the sweep."""
    scores = scores_of(sweep, records)
    return [
        SeedResults(
            cell=cell,
            seed=seed,
            trials=trials,
            scores=scores[trials[0].key],
            results=means_over_folds([records[trial.key].results for trial in trials]),
        )
        for (cell, seed), trials in with_all_folds(sweep.trials, scores).items()
    ]


def means_over_folds(folds: Sequence[Mapping[str, Json]]) -> dict[str, float | None]:
    """The numbers among the results of one seed, each a mean; None where a fold has none."""
    named = [name for name, value in folds[0].items() if value is None or as_number(value) is not None]
    return {name: mean_of_all(as_number(results.get(name)) for results in folds) for name in named}


def lead_tasks(seeds: Sequence[SeedResults]) -> tuple[str, Sequence[str]]:
    """What speaks for a sweep, in words, and the tasks whose mean it is: those of the report's first table, which may be of one task."""
    for name, kind in TASK_KINDS.items():
        tasks = list(dict.fromkeys(task for one in seeds for task in one.tasks(name)))
        if tasks:
            return (f"average of {name}", tasks) if has_average(tasks) and not kind.measures_in_table else (tasks[0], tasks[:1])
    return "", ()


def has_average(tasks: Iterable[str]) -> bool:
    """Whether the mean over these tasks, all of one kind, says more than they do."""
    return len(set(tasks)) > 1
