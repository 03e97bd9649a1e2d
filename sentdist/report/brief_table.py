"""The scores of a sweep in so few words that they fit a terminal: mean ± standard deviation of every cell over its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentdist.plan.stage import Json, as_number
from sentdist.plan.tasks import TASKS
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord


@dataclass(frozen=True, kw_only=True)
class BriefTable:
    """Columns: seeds that have scores of all their folds, then a main score (× 100) a task, then the average of the STS tasks if there are
    several."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def brief_table(sweep: SweepRecord, records: Mapping[str, Record]) -> BriefTable:
    """One row a cell (method and grid values), over its seeds, each the mean of its folds, in the order of the sweep."""
    lacking = {(trial.cell, trial.seed) for trial in sweep.trials if trial.key not in records}
    folds: dict[tuple[str, int | None], list[Mapping[str, Json]]] = {}
    for trial in sweep.trials:
        if (trial.cell, trial.seed) not in lacking:
            folds.setdefault((trial.cell, trial.seed), []).append(records[trial.key].results)
    done = [(cell, _over_folds(found)) for (cell, _), found in folds.items()]
    tasks = [task for task in TASKS if any(task in results for _, results in done)]
    graded = [task for task in tasks if TASKS[task].kind == "sts"]
    own = [name for _, results in done for name, value in results.items() if name not in TASKS and _is_own_score(name, value)]
    tasks += dict.fromkeys(own)
    rows = []
    for cell in dict.fromkeys(trial.cell for trial in sweep.trials):
        found = [results for name, results in done if name == cell]
        values = [[value for results in found if (value := as_number(results.get(task))) is not None] for task in tasks]
        if len(graded) > 1:
            numbers = [[value for task in graded if (value := as_number(results.get(task))) is not None] for results in found]
            values.append([statistics.mean(row) for row in numbers if len(row) == len(graded)])
        rows.append((cell, str(len(found)), *map(_spread, values)))
    average = ("average of sts",) if len(graded) > 1 else ()
    return BriefTable(columns=("system", "n", *tasks, *average), rows=tuple(rows))


def _over_folds(folds: Sequence[Mapping[str, Json]]) -> Mapping[str, Json]:
    """The results of one seed: numbers are means, None where a fold has none."""
    named = [name for name, value in folds[0].items() if value is None or as_number(value) is not None]
    values = {name: [as_number(results.get(name)) for results in folds] for name in named}
    return {
        name: None if None in found else statistics.mean(value for value in found if value is not None) for name, found in values.items()
    }


def _is_own_score(name: str, value: Json) -> bool:
    """Whether a result is the main score of a task that is not in the table, such as `sts-my-pairs` or `links`."""
    return "." not in name and (value is None or as_number(value) is not None)


def _spread(values: list[float]) -> str:
    if not values:
        return "–"
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"
