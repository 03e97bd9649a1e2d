"""What the end of a sweep says below its table: whether training has helped at all, and whether anything is tested."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from sentdist.evaluation.means import mean_of_all
from sentdist.report.cell_facts import cell_facts
from sentdist.report.seed_results import lead_tasks, seed_results
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord


def no_gain(sweep: SweepRecord, records: Mapping[str, Record]) -> str:
    """Says that no trained row is above the encoder as it was; "" where one is, or where one of the two is not scored.

    By the means of test scores that stand in the table: of the tasks that speak for the sweep.
    """
    seeds = seed_results(sweep, records)
    column, tasks = lead_tasks(seeds)
    means: dict[str, float] = {}
    for cell in dict.fromkeys(one.cell for one in seeds):
        scores = [mean_of_all(one.results.get(task) for task in tasks) for one in seeds if one.cell == cell]
        defined = [score for score in scores if score is not None]
        means |= {cell: statistics.fmean(defined)} if defined else {}
    first = {one.cell: one.trials[0] for one in reversed(seeds)}
    trained = [cell for cell in means if first[cell].train is not None]
    untouched = [
        cell for cell in means if (encoder := cell_facts(first[cell], records).untouched) and encoder.initialization == "pretrained"
    ]
    if not trained or not untouched:
        return ""
    best, as_it_was = max(trained, key=lambda cell: means[cell]), max(untouched, key=lambda cell: means[cell])
    if means[best] > means[as_it_was]:
        return ""
    so_far = " so far" if any(trial.key not in records for trial in sweep.trials) else ""
    return (
        f"No trained row is above the untouched encoder on test{so_far} ({column}): {as_it_was} has {means[as_it_was]:.2f}, "
        f"the best trained row, {best}, {means[best]:.2f}. Use the encoder as it was, or train otherwise."
    )


def no_tests(sweep: SweepRecord, records: Mapping[str, Record]) -> str:
    """Says that the recipe names no baseline, and how to name one; "" where it does, or where nothing is scored."""
    scored = list(dict.fromkeys(trial.method for trial in sweep.trials if trial.key in records))
    if sweep.baseline is not None or not scored:
        return ""
    if len({trial.method for trial in sweep.trials}) < 2:
        return (
            "Nothing is tested against a baseline: add one under `methods:`, such as `base: {}` (the untouched "
            "encoder), and say `baseline: base`."
        )
    untouched = [trial.method for trial in sweep.trials if trial.train is None]
    others = [name for name in scored if name != (untouched or scored)[0]]
    return (
        f"Nothing is tested against a baseline: say `baseline: {(untouched or scored)[0]}` in the recipe (or {', '.join(others)}) and give "
        "the command again; it rebuilds nothing, and the report has the tests."
    )
