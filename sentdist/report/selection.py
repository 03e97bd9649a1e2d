"""Report cells chosen on dev with their test scores, the optimism of choosing on test, and the compute of each cell."""

from __future__ import annotations

import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from sentdist.evaluation.relational import BY
from sentdist.evaluation.significance import summarize
from sentdist.evaluation.sts import mean_of_all
from sentdist.plan.stage import Json, as_number
from sentdist.plan.stages import STAGES, Scores, Selection, Train, chosen_and_scored
from sentdist.plan.task_kinds import DevTask, ScoredTask
from sentdist.report.style import INK, MUTED, Drawing, SystemStyles, canvas, check_drawable, house_style, in_lines, quiet, save, styles_of
from sentdist.report.tables import ResultTable
from sentdist.store.chosen import challengers, confirmed_name
from sentdist.store.record import Record, restored
from sentdist.store.sweep import SweepRecord, TrialRecord

SELECTION_TITLE = "Chosen on dev, scored on test"
SELECTION_HEADER = ("system", "chosen on", "dev score of what was chosen", "test", "test score of it", "dev − test", "headline test score")
SELECTION_NOTE = "Means over finished trials. Dev and test differ in difficulty: compare the gap between rows, not with 0."

DEV = "-dev"  # ends the name of a dev task beside its test task


@dataclass(frozen=True, kw_only=True)
class ChosenCell:
    """A cell whose trainings kept their best weights by dev.

    Args:
        dev: mean best dev score × 100.
        test: mean score × 100 of these weights on the test part of the same data; None if there is none.
        headline: mean score in the table's leading column; None if there is none.
        chose_and_scored: tasks that chose the weights and are also test tasks.
    """

    label: str
    dev_task: str
    dev: float
    test_task: str | None
    test: float | None
    headline: float | None
    chose_and_scored: tuple[str, ...] = ()

    @property
    def gap(self) -> float | None:
        """Dev minus test score on the two parts of one data set."""
        return None if self.test is None else self.dev - self.test


def chosen_cells(sweep: SweepRecord, records: Mapping[str, Record], table: ResultTable) -> list[ChosenCell]:
    """Return the cells of a table that were selected on dev, in its order."""
    cells, found = sweep.cells, []
    for line in table.lines:
        trials = [trial for trial in cells.get(line.label, ()) if trial.key in records and trial.train in records]
        picked = [one for trial in trials for one in _picked(trial, records)]
        if not picked:
            continue
        tests = [(one.test_task, one.test) for one in picked if one.test_task is not None and one.test is not None]
        summary = line.cells[table.lead].summary
        found.append(
            ChosenCell(
                label=line.label,
                dev_task=picked[0].dev_task,
                dev=statistics.mean(one.dev for one in picked),
                test_task=tests[0][0] if tests else None,
                test=mean_of_all(one.test for one in picked),
                headline=None if summary is None else summary.mean,
                chose_and_scored=picked[0].chose_and_scored,
            )
        )
    return found


def selection_note(cells: list[ChosenCell]) -> str:
    """Return the note on which score chose the weights, and whether it is also scored as test."""
    both = sorted({task for cell in cells for task in cell.chose_and_scored})
    if both:
        return f"{', '.join(both)} chose the weights and is scored as test, too: those scores flatter. {SELECTION_NOTE}"
    return f"Weights are chosen by the dev score, never by a test score. {SELECTION_NOTE}"


def selection_rows(cells: list[ChosenCell]) -> list[list[str]]:
    """Return the rows under SELECTION_HEADER."""
    return [
        [
            cell.label,
            cell.dev_task,
            f"{cell.dev:.2f}",
            cell.test_task or "–",
            *(_number(one) for one in (cell.test, cell.gap, cell.headline)),
        ]
        for cell in cells
    ]


def selection_sentence(cells: list[ChosenCell], *, column: str) -> str:
    """Compare choosing among cells on dev with choosing on test, in words; "" for fewer than two cells."""
    rivals = [(cell, cell.headline) for cell in cells if cell.headline is not None]
    if len(rivals) < 2 or len({cell.dev_task for cell, _ in rivals}) > 1:
        return ""
    honest, score = max(rivals, key=lambda rival: rival[0].dev)
    flattered, best = max(rivals, key=lambda rival: rival[1])
    said = f"Of {len(rivals)} systems, {honest.dev_task} alone chooses {honest.label}: its test score ({column}) is {score:.2f}."
    if flattered is honest:
        return f"{said} The test would have chosen the same."
    return (
        f"{said} Choosing on the test itself would have reported {flattered.label} with {best:.2f}: {best - score:.2f} points of optimism."
    )


def confirmation_sentence(sweep: SweepRecord, records: Mapping[str, Record], confirmed: ResultTable | None) -> str:
    """Return the result of fresh seeds, or a warning that there are none; "" if dev did not choose among several cells.

    Args:
        confirmed: table of the sweep of fresh seeds, once some are scored.
    """
    cells = challengers(sweep, records)
    if len(cells) < 2:
        return ""
    rivals = f"{len(cells)} cells" + ("" if sweep.baseline is None else " beside the baseline")
    if confirmed is None or not confirmed.verdicts:
        return (
            f"Exploratory: dev chose {cells[0].label} among {rivals} with the seeds whose test scores are above, so its lead is partly "
            "luck. With `confirm_seeds: N` in the recipe the chosen cell is trained with fresh seeds."
        )
    seeds = max(line.num_seeds for line in confirmed.lines)
    said = " ".join(confirmed.verdicts.values())
    return f"Confirmed or not, by {seeds} fresh seeds of what dev chose among {rivals} ({confirmed_name(sweep.name)}): {said}"


@dataclass(frozen=True, kw_only=True)
class _Picked:
    """The dev score that chose a trial's weights, and the mean score of the test tasks of the same data; None if there are none."""

    dev_task: str
    dev: float
    test_task: str | None
    test: float | None
    chose_and_scored: tuple[str, ...]


def _picked(trial: TrialRecord, records: Mapping[str, Record]) -> Iterator[_Picked]:
    """The selection in one trial; nothing if its training chose no weights."""
    train, scores = restored(trial.train, records), restored(trial.key, records)
    if not isinstance(train, Train) or not isinstance(scores, Scores) or train.selection is None:
        return
    dev = records[train.key].dev_score
    if dev is None:
        return
    test_task, test = scored_on_test(train.selection, scores.tasks, records[trial.key].results)
    yield _Picked(
        dev_task=train.selection.name, dev=dev, test_task=test_task, test=test,
        chose_and_scored=chosen_and_scored(train.selection, scores.tasks),
    )  # fmt: skip


def scored_on_test(selection: Selection, tasks: Sequence[ScoredTask], results: Mapping[str, Json]) -> tuple[str | None, float | None]:
    """Return names and score of the test tasks of the data that chose, averaged as the dev score is; None if one is missing."""
    named = {task.name.removesuffix(DEV) for task in selection.tasks}
    found = [_test_task(task, tasks, named) for task in selection.tasks]
    known = [name for name in found if name is not None]
    if len(known) < len(found):
        return None, None
    parts = [_of_part([known[place] for place in part], results) for part in selection.places]
    return "+".join(known), mean_of_all(parts)


def _test_task(chose: DevTask, tasks: Sequence[ScoredTask], named: Container[str]) -> str | None:
    """The test task of a dev task: same source, kind and name; else same source and kind, if it has not the name of another dev task."""
    alike = [task.name for task in tasks if (task.kind, task.source) == (chose.kind, chose.source)]
    name = chose.name.removesuffix(DEV)
    return name if name in alike else next((other for other in alike if other not in named), None)


def _of_part(names: Sequence[str], results: Mapping[str, Json]) -> float | None:
    """The mean over a part's tasks; tasks scored by relations use the best relation of the part, as dev scores do."""
    by_relation = [name.removeprefix(names[0]) for name in results if name.startswith(f"{names[0]}.{BY}")]
    rows = [[as_number(results.get(f"{name}{end}")) for name in names] for end in by_relation or [""]]
    return max((mean for row in rows if (mean := mean_of_all(row)) is not None), default=None)


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.2f}"


COUNTED = frozenset(kind for kind, stage in STAGES.items() if stage.purpose == "training")

MOST_NAMES = 24  # in a figure; its table has all


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Scores and cost of one system.

    Args:
        scores: one per seed.
        alone_s: mean seconds × workers of a trial if it builds all its stages; `shared_s`: if shared stages are divided among trials.
        num_trials: seeds × folds.
    """

    system: str
    scores: Sequence[float]
    alone_s: float
    shared_s: float
    num_trials: int


def costs(sweep: SweepRecord, records: Mapping[str, Record], scores: Mapping[str, Sequence[float]]) -> Iterator[Cost]:
    """Yield the costs of the cells whose stages are all finished; `scores`: cell -> scores of its seeds."""
    mentions, trials = sweep.mentions, sweep.cells
    for cell, values in scores.items():
        needed = [[key for key in trial.stages if _counts(sweep, key)] for trial in trials.get(cell, ())]
        if not values or not needed or not all(key in records for keys in needed for key in keys):
            continue
        alone = [sum(work(records[key]) for key in keys) for keys in needed]
        shared = [sum(work(records[key]) / mentions[key] for key in keys) for keys in needed]
        yield Cost(system=cell, scores=values, alone_s=sum(alone) / len(alone), shared_s=sum(shared) / len(shared), num_trials=len(needed))


def work(record: Record) -> float:
    """Return seconds × workers of a training, or the seconds of any other stage."""
    workers = record.runtime.get("workers", 1) if record.kind == "train" else 1
    return record.seconds * (workers if isinstance(workers, int) else 1)


def work_unit(records: Mapping[str, Record]) -> str:
    """Return the unit of `work`: GPU-seconds if every training worker had one GPU, else worker-seconds."""
    gpus = {record.runtime.get("gpus_per_worker") for record in records.values() if record.kind == "train"}
    return "GPU-seconds" if gpus == {1.0} else "worker-seconds"


def cost_plot(systems: Sequence[Cost], *, unit: str, work_unit: str = "worker-seconds", styles: SystemStyles | None = None) -> Drawing:
    """Draw the score against the compute of a trial: filled with stages shared as in this sweep, hollow if each trial builds its own."""
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
    """The systems that get a name: all if there is room, else those better than all that cost as much or less."""
    if len(found) <= MOST_NAMES:
        return list(range(len(found)))
    best, front = float("-inf"), []
    for place in sorted(range(len(found)), key=lambda place: (found[place].shared_s, -means[place])):
        if means[place] > best:
            best = means[place]
            front.append(place)
    return front[-MOST_NAMES:]


def _label(axes: Axes, points: Sequence[tuple[float, float, str]], *, height_in: float) -> None:
    """Write names beside the panel without overlaps; a thin line leads to the point."""
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
