"""What dev chose among the cells of a sweep; no test score has a say."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sentdist.errors import counted
from sentdist.plan.stages import Train
from sentdist.store.record import Record
from sentdist.store.restored import restored
from sentdist.store.sweep import SweepRecord, TrialRecord

MOST_EQUAL = 3  # cells that a line names


@dataclass(frozen=True, kw_only=True)
class DevCell:
    """A cell all of whose trainings kept the weights that a dev task found best.

    label: of the cell. task: that dev task, as a recipe spells it. dev: mean of their best dev scores (× 100).
    trials: its trials, in the order of the sweep; best: the one whose training has the highest dev score.
    equal: labels of the other cells with the very same score, which come behind it by their place in the sweep alone.
    """

    label: str
    task: str
    dev: float
    trials: tuple[TrialRecord, ...]
    best: TrialRecord
    equal: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The cell and what chose it, as a phrase."""
        more = f" and {len(self.equal) - MOST_EQUAL} more" if len(self.equal) > MOST_EQUAL else ""
        equal = f", as high as {', '.join(self.equal[:MOST_EQUAL])}{more}: the first of them is taken" if self.equal else ""
        return f"{self.label}, {self.task} {self.dev:.2f} (mean of {counted(len(self.trials), 'training')}){equal}"


def cells_by_dev(sweep: SweepRecord, records: Mapping[str, Record]) -> list[DevCell]:
    """The cells that can be compared on dev, best mean first; of equal ones the first in the sweep.

    A cell counts when all its trials are scored and all their trainings were selected on dev. Only cells that were selected on the same
    tasks can be compared: where a sweep has several dev tasks, those of the task that most cells share.
    """
    found: list[DevCell] = []
    for label, trials in sweep.cells.items():
        chosen_by = {trial.key: by for trial in trials if (by := dev_score(trial, records)) is not None}
        if len(chosen_by) == len({trial.key for trial in trials}):
            found.append(
                DevCell(
                    label=label,
                    task=" and ".join(sorted({task for task, _ in chosen_by.values()})),
                    dev=statistics.fmean(chosen_by[trial.key][1] for trial in trials),
                    trials=trials,
                    best=max(trials, key=lambda trial: chosen_by[trial.key][1]),
                )
            )
    if not found:
        return []
    ((task, _),) = Counter(cell.task for cell in found).most_common(1)
    ranked = sorted((cell for cell in found if cell.task == task), key=lambda cell: -cell.dev)
    return [replace(ranked[0], equal=tuple(cell.label for cell in ranked[1:] if cell.dev == ranked[0].dev)), *ranked[1:]]


def challengers(sweep: SweepRecord, records: Mapping[str, Record]) -> list[DevCell]:
    """`cells_by_dev` without the baseline's: those that are compared with it."""
    return [cell for cell in cells_by_dev(sweep, records) if cell.trials[0].method != sweep.baseline]


def chosen_of_baseline(sweep: SweepRecord, records: Mapping[str, Record]) -> DevCell | None:
    """What dev chose of the baseline's cells; None where it chose none."""
    return next((cell for cell in cells_by_dev(sweep, records) if cell.trials[0].method == sweep.baseline), None)


def dev_score(trial: TrialRecord, records: Mapping[str, Record]) -> tuple[str, float] | None:
    """Name of the dev tasks that chose the weights of a scored trial, and their score (× 100); None where none did."""
    train = restored(trial.train, records)
    if not isinstance(train, Train) or train.selection is None or trial.key not in records:
        return None
    score = records[train.key].dev_score
    return None if score is None else (train.selection.name, score)


def dev_chooses(sweep: SweepRecord) -> bool:
    """Whether its recipe names a task that chooses on dev."""
    return bool(sweep.recipe.get("selection"))
