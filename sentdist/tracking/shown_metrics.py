"""Which numbers of a record or a history are shown as metrics, under names that a server takes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import have_mean
from sentdist.plan.task_names import kind_of_scored
from sentdist.plan.tasks import TASK_GROUPS, group_parts
from sentdist.store.record import Record

CURVE = {"loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate", "sentences_per_s": "sentences_per_s", "dev_score": "dev_score"}


class Point(NamedTuple):
    """One value of a metric. at_ms: when it was, on the clock of whoever measured it."""

    name: str
    value: float
    at_ms: int
    step: int


def curve_metrics(point: Mapping[str, Json]) -> dict[str, float]:
    """Metrics of one line of a history; what is no finite number is left out."""
    return {shown: number for name, shown in CURVE.items() if (number := _number(point.get(name))) is not None}


def curve_points(history: str) -> list[Point]:
    """The metrics of all lines of a history."""
    return [
        Point(name, value, at_ms=int(float(line.get("at") or 0) * 1000), step=int(line["step"]))
        for line in map(json.loads, history.splitlines())
        for name, value in curve_metrics(line).items()
    ]


def final_metrics(record: Record) -> dict[str, float]:
    """Metrics of a finished stage: its numeric results, how long it took, and for scores the averages of task groups.

    A training's mean throughput is called `mean_sentences_per_s`, since `sentences_per_s` is its curve; what its seconds were spent on
    `time.forward_s` and so on. A task's measure that is its main score already (`stsb.spearman`) is left out. Numbers are rounded
    to what a page can show, four digits at least: the record beside them keeps all.
    """
    numbers = {name: number for name, value in record.results.items() if (number := _number(value)) is not None}
    found = {
        metric_name(_with_unit(name)): number
        for name, number in numbers.items()
        if "." not in name or numbers.get(name.partition(".")[0]) != number
    }
    if record.kind == "train" and "sentences_per_s" in found:
        found["mean_sentences_per_s"] = found.pop("sentences_per_s")
    if record.kind == "scores":
        found |= averages(main_scores(record))
    return {name: shown(number) for name, number in (found | {f"{record.kind}_s": record.seconds}).items()}


def main_scores(record: Record) -> dict[str, float]:
    """The main score (× 100) of every task: the results without a dot in their name, in their order."""
    return {name: number for name, value in record.results.items() if "." not in name and (number := _number(value)) is not None}


def averages(scores: Mapping[str, float]) -> dict[str, float]:
    """Means over the task groups that are complete; over all tasks (`avg`) where several tasks make no group. Of tasks that have a mean."""
    found = {
        f"avg_{group}": fmean(fmean(scores[task] for task in part) for part in group_parts(group))
        for group, tasks in TASK_GROUPS.items()
        if all(task in scores for task in tasks) and _are_alike(tasks)
    }
    if not found and len(scores) > 1 and _are_alike(scores):
        found["avg"] = sum(scores.values()) / len(scores)
    return found


def primary_metric(tasks: Sequence[str]) -> str:
    """The metric by which trials over these tasks are compared: the first average there is, else the first task."""
    unrolled = [task for given in tasks for task in TASK_GROUPS.get(given, (given,))]
    return next(iter(averages(dict.fromkeys(unrolled, 0.0))), metric_name(unrolled[0]))


def metric_name(name: str) -> str:
    """A name that MLflow takes: `acc@1` becomes `acc_at_1`."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


def _are_alike(tasks: Iterable[str]) -> bool:
    kinds = {kind_of_scored(task) for task in tasks}
    known = {kind for kind in kinds if kind is not None}
    return known == kinds and have_mean(known)


def _with_unit(name: str) -> str:
    return f"time.{name.removeprefix('seconds.')}_s" if name.startswith("seconds.") else name


def shown(number: float) -> float:
    """A number as a page shows it: four digits, and two after the point."""
    return float(f"{number:.4g}") if abs(number) < 100 else round(number, 2)


def _number(value: Json) -> float | None:
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        return None
    return float(value)
