"""What a sweep's runs come to: the scored trials in order, the metrics that stand first, what dev chooses among them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sentdist.plan.own_tasks import OWN, own_test_names
from sentdist.plan.specs import Shape
from sentdist.plan.task_names import named_task, task_names
from sentdist.store.chosen import DevCell, cells_by_dev, dev_chooses, dev_score
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.table_text import csv_text
from sentdist.tracking.shown_metrics import averages, main_scores, metric_name, primary_metric, shown

DEV_SCORE = "best_dev_score"


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """A scored trial: its scores with their averages, and the dev score that chose its checkpoint."""

    trial: TrialRecord
    scores: dict[str, float]
    dev: float | None


def choice_metrics(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, float]:
    """Metrics of the sweep's own run: mean dev score of what dev chooses, and its mean test scores."""
    cells = cells_by_dev(sweep, records)
    if not cells:
        return {}
    names = sweep_scores(sweep)
    tests = {metric_name(name): value for name in names if (value := mean_score(cells[0], records, name)) is not None}
    return {name: shown(value) for name, value in ({DEV_SCORE: cells[0].dev} | tests).items()}


def mean_score(cell: DevCell, records: Mapping[str, Record], metric: str) -> float | None:
    """Mean of a main score or average over the trials of a cell; None where one of them lacks it."""
    found = [main_scores(records[trial.key]) for trial in cell.trials]
    values = [(averages(scores) | scores).get(metric) for scores in found]
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if len(present) == len(values) else None


def summary_rows(sweep: SweepRecord, records: Mapping[str, Record]) -> list[SummaryRow]:
    """The scored trials, best on dev first; those of which dev knows nothing follow, by the primary metric."""
    rows = []
    for trial in distinct_trials(sweep):
        if trial.key in records:
            scores = main_scores(records[trial.key])
            by = dev_score(trial, records)
            rows.append(SummaryRow(trial=trial, scores=averages(scores) | scores, dev=None if by is None else by[1]))
    metric = sweep_metric(sweep)
    lowest = float("-inf")
    return sorted(rows, key=lambda row: (lowest if row.dev is None else row.dev, row.scores.get(metric, lowest)), reverse=True)


def summary_csv(rows: Sequence[SummaryRow]) -> str:
    """One line a trial, for the artifact tab."""
    tasks = list(dict.fromkeys(task for row in rows for task in row.scores))
    lines: list[list[str]] = [["trial", "method", "seed", "fold", "dev_score", *tasks, "key"]]
    for row in rows:
        trial = row.trial
        cells = [trial.name, trial.method, _cell(trial.seed), _cell(trial.fold), _cell(row.dev)]
        lines.append([*cells, *(_cell(row.scores.get(task)) for task in tasks), trial.key])
    return csv_text(lines)


def sweep_metric(sweep: SweepRecord) -> str:
    """The test score that stands first: it is shown, and chooses nothing."""
    return primary_metric(_asked(sweep))


def order_metric(sweep: SweepRecord) -> str:
    """The metric that orders the trials of a sweep: the dev score where dev chooses, else the test score that stands first."""
    return DEV_SCORE if dev_chooses(sweep) else sweep_metric(sweep)


def sweep_scores(sweep: SweepRecord) -> tuple[str, ...]:
    """Averages and tasks under which the main scores of its trials stand, in the order of the recipe."""
    tasks = _asked(sweep)
    return (*averages(dict.fromkeys(tasks, 0.0)), *tasks)


def distinct_trials(sweep: SweepRecord) -> list[TrialRecord]:
    """One trial a key: two methods that come to the same stages are one run."""
    return list({trial.key: trial for trial in reversed(sweep.trials)}.values())[::-1]


def _asked(sweep: SweepRecord) -> list[str]:
    """The names under which the tasks of the recipe are scored."""
    evaluation = sweep.recipe["evaluation"]
    assert isinstance(evaluation, dict) and isinstance(evaluation["tasks"], list)
    names = task_names([str(task) for task in evaluation["tasks"]])
    return [name for task in names for name in (_own_names(sweep) if task == OWN else (named_task(task).name,))]


def _own_names(sweep: SweepRecord) -> tuple[str, ...]:
    corpus = sweep.recipe["corpus"]
    assert isinstance(corpus, dict)
    return own_test_names(str(corpus["file"]), cast(Shape, corpus["shape"]))


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
