"""Report cells chosen on dev with their test scores, and the optimism of choosing on test."""

from __future__ import annotations

import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentdist.evaluation.relational import BY
from sentdist.evaluation.sts import mean_of_all
from sentdist.recipe.stage import Json, as_number
from sentdist.recipe.stages import Scores, Selection, Train, chosen_and_scored
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record, restored
from sentdist.store.sweep import SweepRecord, TrialRecord, challengers, confirmed_name
from sentdist.tasks.kinds import DevTask, ScoredTask

SELECTION_TITLE = "Chosen on dev, scored on test"
SELECTION_HEADER = ("system", "chosen on", "dev score", "test", "test score", "dev − test", "score in the first table")
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
    rivals = f"{len(cells)} settings" + ("" if sweep.baseline is None else " beside the baseline")
    if confirmed is None or not confirmed.verdicts:
        return (
            f"Exploratory: dev chose {cells[0].label} among {rivals} with the seeds whose test scores are above, so its lead is partly "
            "luck. With `confirm_seeds: N` in the recipe the chosen settings are trained with new seeds."
        )
    seeds = max(line.num_seeds for line in confirmed.lines)
    said = " ".join(confirmed.verdicts.values())
    return f"Confirmed or not, by {seeds} new seeds of what dev chose among {rivals} ({confirmed_name(sweep.name)}): {said}"


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
