"""Summarize a sweep: scored trials in order, primary metrics, means and differences, and what dev chooses."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sentdist.plan.specs import Shape
from sentdist.plan.task_names import OWN, named_task, own_test_names, task_names
from sentdist.store.chosen import DevCell, cells_by_dev, chosen_of_baseline, dev_chooses, dev_score
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.text import csv_text
from sentdist.tracking.run_values import averages, main_scores, metric_name, primary_metric, shown

DEV_SCORE = "best_dev_score"
NUM_TRIALS, DEVIATION = "num_trials", "_sd"


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """A scored trial: its scores with their averages, and the dev score that chose its checkpoint."""

    trial: TrialRecord
    scores: dict[str, float]
    dev: float | None


def choice_metrics(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, float]:
    """Return the metrics of the sweep's run: mean dev score and mean test scores of the cell that dev chooses."""
    cells = cells_by_dev(sweep, records)
    if not cells:
        return {}
    names = sweep_scores(sweep)
    tests = {metric_name(name): value for name in names if (value := mean_score(cells[0], records, name)) is not None}
    return {name: shown(value) for name, value in ({DEV_SCORE: cells[0].dev} | tests).items()}


def mean_score(cell: DevCell, records: Mapping[str, Record], metric: str) -> float | None:
    """Return the mean of a score over the trials of a cell; None if one of them lacks it."""
    found = [main_scores(records[trial.key]) for trial in cell.trials]
    values = [(averages(scores) | scores).get(metric) for scores in found]
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if len(present) == len(values) else None


def summary_rows(sweep: SweepRecord, records: Mapping[str, Record]) -> list[SummaryRow]:
    """Return the scored trials, best on dev first; those without a dev score follow, by the primary metric."""
    rows = []
    for trial in distinct_trials(sweep):
        if trial.key in records:
            scores = main_scores(records[trial.key])
            by = dev_score(trial, records)
            rows.append(SummaryRow(trial=trial, scores=averages(scores) | scores, dev=None if by is None else by[1]))
    metric = sweep_metric(sweep)
    lowest = float("-inf")
    return sorted(rows, key=lambda row: (lowest if row.dev is None else row.dev, row.scores.get(metric, lowest)), reverse=True)


def reference(sweep: SweepRecord) -> str | None:
    """Return the method that others are compared with: the baseline, else an untouched encoder."""
    return sweep.baseline or next((trial.method for trial in sweep.trials if trial.train is None), None)


def difference_metric(sweep: SweepRecord) -> str | None:
    """Return the metric of the primary score minus the reference's; None without a reference."""
    method = reference(sweep)
    return None if method is None else metric_name(f"{sweep_metric(sweep)}_vs_{method}")


def compared(sweep: SweepRecord, records: Mapping[str, Record]) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Return metrics that need more than one trial: of scored trials by key, and of fully scored cells by label.

    A trial has its primary score minus the mean of the reference's trials (those that dev chose, if it did). A cell has the means over its
    trials and the standard deviation of the primary score; there are none if each cell has one trial.
    """
    metric, difference = sweep_metric(sweep), difference_metric(sweep)
    rows = {row.trial.key: row for row in summary_rows(sweep, records) if metric in row.scores}
    chosen = chosen_of_baseline(sweep, records)
    keys = {trial.key for trial in (chosen.trials if chosen else [one for one in sweep.trials if one.method == reference(sweep)])}
    of_trials: dict[str, dict[str, float]] = {}
    if difference is not None and keys and keys <= rows.keys():
        mean = statistics.fmean(rows[key].scores[metric] for key in keys)
        of_trials = {key: {difference: round(row.scores[metric] - mean, 2)} for key, row in rows.items()}
    cells = sweep.cells.items() if mean_columns(sweep) else ()
    of_cells = {
        label: _means([rows[trial.key] for trial in trials], metric, [of_trials.get(trial.key, {}) for trial in trials])
        for label, trials in cells
        if all(trial.key in rows for trial in trials)
    }
    return of_trials, of_cells


def _means(rows: Sequence[SummaryRow], metric: str, further: Sequence[Mapping[str, float]]) -> dict[str, float]:
    metrics = [
        {metric_name(name): score for name, score in row.scores.items()} | ({} if row.dev is None else {DEV_SCORE: row.dev}) | dict(more)
        for row, more in zip(rows, further, strict=True)
    ]
    found = {name: round(statistics.fmean(one[name] for one in metrics), 2) for name in metrics[0] if all(name in one for one in metrics)}
    if len(rows) > 1:
        found[f"{metric}{DEVIATION}"] = round(statistics.stdev(row.scores[metric] for row in rows), 2)
    return found | {NUM_TRIALS: float(len(rows))}


def mean_columns(sweep: SweepRecord) -> tuple[str, ...]:
    """Return the metrics that only means have; empty if each cell has one trial."""
    several = any(len(trials) > 1 for trials in sweep.cells.values())
    return (f"{sweep_metric(sweep)}{DEVIATION}", NUM_TRIALS) if several else ()


def summary_csv(rows: Sequence[SummaryRow]) -> str:
    """Return the trials as CSV, one line each."""
    tasks = list(dict.fromkeys(task for row in rows for task in row.scores))
    lines: list[list[str]] = [["trial", "method", "seed", "fold", "dev_score", *tasks, "key"]]
    for row in rows:
        trial = row.trial
        cells = [trial.name, trial.method, _cell(trial.seed), _cell(trial.fold), _cell(row.dev)]
        lines.append([*cells, *(_cell(row.scores.get(task)) for task in tasks), trial.key])
    return csv_text(lines)


def sweep_metric(sweep: SweepRecord) -> str:
    """Return the primary test score; it is shown and chooses nothing."""
    return primary_metric(_asked(sweep))


def order_metric(sweep: SweepRecord) -> str:
    """Return the metric that orders the trials: the dev score if dev chooses, else the primary test score."""
    return DEV_SCORE if dev_chooses(sweep) else sweep_metric(sweep)


def sweep_scores(sweep: SweepRecord) -> tuple[str, ...]:
    """Return the names of averages and main scores of the trials, in the order of the recipe."""
    tasks = _asked(sweep)
    return (*averages(dict.fromkeys(tasks, 0.0)), *tasks)


def distinct_trials(sweep: SweepRecord) -> list[TrialRecord]:
    """Return one trial per key: methods with the same stages share a run."""
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
