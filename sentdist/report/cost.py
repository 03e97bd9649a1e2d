"""What a score costs: compute against quality, and what is spared where trials share stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from sentdist.evaluation.summary import summarize
from sentdist.plan.stages import STAGES
from sentdist.report.style import (
    INK,
    MUTED,
    Drawing,
    SystemStyles,
    canvas,
    check_drawable,
    house_style,
    in_lines,
    quiet,
    save,
    styles_of,
)
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord

COUNTED = frozenset(kind for kind, stage in STAGES.items() if stage.purpose == "training")

MOST_NAMES = 24  # in a figure; its table has all


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One system: scores of its seeds; mean seconds × workers of a trial, built alone and with its part of what others use too. num_trials:
    as many as seeds, times folds."""

    system: str
    scores: Sequence[float]
    alone_s: float
    shared_s: float
    num_trials: int


def costs(sweep: SweepRecord, records: Mapping[str, Record], scores: Mapping[str, Sequence[float]]) -> Iterator[Cost]:
    """The cells whose stages are all finished; `scores`: those of the seeds of each cell."""
    mentions, trials = sweep.mentions, sweep.cells
    for cell, values in scores.items():
        needed = [[key for key in trial.stages if _counts(sweep, key)] for trial in trials.get(cell, ())]
        if not values or not needed or not all(key in records for keys in needed for key in keys):
            continue
        alone = [sum(work(records[key]) for key in keys) for keys in needed]
        shared = [sum(work(records[key]) / mentions[key] for key in keys) for keys in needed]
        yield Cost(system=cell, scores=values, alone_s=sum(alone) / len(alone), shared_s=sum(shared) / len(shared), num_trials=len(needed))


def work(record: Record) -> float:
    """Seconds × workers of a training; seconds of all else."""
    workers = record.runtime.get("workers", 1) if record.kind == "train" else 1
    return record.seconds * (workers if isinstance(workers, int) else 1)


def work_unit(records: Mapping[str, Record]) -> str:
    """What `work` counts here: seconds of GPUs where each worker of all trainings had one to itself, else of workers."""
    gpus = {record.runtime.get("gpus_per_worker") for record in records.values() if record.kind == "train"}
    return "GPU-seconds" if gpus == {1.0} else "worker-seconds"


def cost_plot(systems: Sequence[Cost], *, unit: str, work_unit: str = "worker-seconds", styles: SystemStyles | None = None) -> Drawing:
    """Score against compute of a trial: filled where stages are shared as in this sweep, hollow where each trial builds all of its own."""
    check_drawable(systems, "cost")
    records: list[list[object]] = []
    with house_style():
        summaries = [summarize(list(system.scores)) for system in systems]
        named = _named(systems, [score.mean for score in summaries])
        height = 1.5 + 0.42 * max(4, len(named))
        figure, (axes,) = canvas(width=7.2, height=height)
        styles = styles or styles_of(system.system for system in systems)
        for system, score in zip(systems, summaries, strict=True):
            color = styles[system.system].color
            records.append([system.system, score.mean, score.sd, score.num_seeds, system.shared_s, system.alone_s])
            axes.plot([system.shared_s, system.alone_s], [score.mean, score.mean], color=color, alpha=0.5, linewidth=1.4)
            axes.errorbar(system.shared_s, score.mean, yerr=score.sd or 0.0, fmt="o", color=color, markeredgecolor="white", markersize=8)
            if system.alone_s > 1.02 * system.shared_s:
                axes.plot(system.alone_s, score.mean, "o", color="white", markeredgecolor=color, markersize=7, markeredgewidth=1.5)
        longest = max(system.alone_s for system in systems) or 1.0
        axes.set_xlim(-0.03 * longest, 1.05 * longest)
        axes.margins(y=0.15)
        points = [
            (max(system.alone_s, system.shared_s), score.mean, system.system) for system, score in zip(systems, summaries, strict=True)
        ]
        _label(axes, [points[place] for place in named], height_in=height)
        axes.set_xlabel(f"{work_unit} to train a trial, all its inputs included")
        axes.set_ylabel(in_lines(unit, height_in=height - 0.7))
        quiet(axes)
        alone, shared = (sum(getattr(system, side) * system.num_trials for system in systems) for side in ("alone_s", "shared_s"))
        spread = " (± 1 standard deviation over seeds)" if any(score.sd for score in summaries) else ""
        caption = (
            f"Score{spread} against compute: filled with shared stages, hollow if every trial built its own. "
            f"All trials: {shared:,.0f} {work_unit} instead of {alone:,.0f}."
            f"{'' if len(named) == len(systems) else f' Of {len(systems)} systems, those are named that no cheaper one equals.'}"
        )
        header = ["system", "mean", "sd", "seeds", f"{work_unit} shared", f"{work_unit} alone"]
        return save(figure, name="cost", caption=caption, header=header, records=records)


def _counts(sweep: SweepRecord, key: str) -> bool:
    return sweep.places[key].partition("/")[0] in COUNTED


def _named(found: Sequence[Cost], means: Sequence[float]) -> list[int]:
    """Which systems get a name: all while there is room, else those that are better than everything that costs as much or less."""
    if len(found) <= MOST_NAMES:
        return list(range(len(found)))
    best, front = float("-inf"), []
    for place in sorted(range(len(found)), key=lambda place: (found[place].shared_s, -means[place])):
        if means[place] > best:
            best = means[place]
            front.append(place)
    return front[-MOST_NAMES:]


def _label(axes: Axes, points: Sequence[tuple[float, float, str]], *, height_in: float) -> None:
    """Names beside the panel, moved apart where they would lie on each other; a thin line leads to the point."""
    ordered = sorted(points, key=lambda point: point[1])
    low, high = axes.get_ylim()
    gap = 0.2 * (high - low) / height_in  # a line of text needs 0.2 inches
    placed = float("-inf")
    for x, y, text in ordered:
        placed = max(y, placed + gap)
        axes.annotate(
            text, xy=(x, y), xytext=(1.03, placed), textcoords=axes.get_yaxis_transform(), va="center", fontsize=8.5, color=INK,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "alpha": 0.5, "shrinkA": 2, "shrinkB": 6},
        )  # fmt: skip
