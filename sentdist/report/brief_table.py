"""The scores of a sweep in so few words that they fit a terminal: mean ± standard deviation of every cell over its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sentdist.evaluation.means import mean_of_all
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.tasks import TASKS
from sentdist.report.leaks import Leaked
from sentdist.report.seed_results import lead_tasks, seed_results
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord


@dataclass(frozen=True, kw_only=True)
class BriefTable:
    """Columns: seeds that have scores of all their folds, then a main score (× 100) a task, then the average that speaks for the sweep,
    if there is one. A score whose test set the training data hold says so."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def brief_table(
    sweep: SweepRecord, records: Mapping[str, Record], *, leaked: Mapping[tuple[str, str], Leaked] = MappingProxyType({})
) -> BriefTable:
    """One row a cell (method and grid values), over its seeds, each the mean of its folds, in the order of the sweep.

    leaked: (cell, task) -> what of the test its training data hold.
    """
    seeds = seed_results(sweep, records)
    named = dict.fromkeys(task for one in seeds for kind in TASK_KINDS for task in one.tasks(kind))
    tasks = [*(task for task in TASKS if task in named), *(task for task in named if task not in TASKS)]
    lead, averaged = lead_tasks(seeds)
    average = (lead,) if len(averaged) > 1 else ()
    rows = []
    for cell in sweep.cells:
        found = [one.results for one in seeds if one.cell == cell]
        values = [[results.get(task) for results in found] for task in tasks]
        if average:
            values.append([mean_of_all(results.get(task) for task in averaged) for results in found])
        leaks = [leaked.get((cell, task)) for task in (*tasks, *average)]
        shown = (spread if leak is None else f"{spread}, {leak.words}" for spread, leak in zip(map(_spread, values), leaks, strict=True))
        rows.append((cell, str(len(found)), *shown))
    return BriefTable(columns=("system", "n", *tasks, *average), rows=tuple(rows))


def _spread(values: list[float | None]) -> str:
    """Over the seeds that have a score. Where all have the same, no deviation: ± 0.00 passes for certainty, as in a report's tables."""
    defined = [value for value in values if value is not None]
    if not defined:
        return "–"
    mean, deviation = f"{statistics.mean(defined):.2f}", f"{statistics.stdev(defined) if len(defined) > 1 else 0.0:.2f}"
    return mean if deviation == "0.00" else f"{mean} ± {deviation}"
