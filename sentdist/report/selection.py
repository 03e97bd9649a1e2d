"""Report which cells dev chose, and what fresh seeds say of the choice."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentdist.recipe.stages import Scores, Train, chosen_and_scored
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record, restored
from sentdist.store.sweep import SweepRecord, challengers, confirmed_name

SELECTION_TITLE = "Chosen on dev, scored on test"
SELECTION_HEADER = ("system", "chosen on", "dev score", "score in the first table")


@dataclass(frozen=True, kw_only=True)
class ChosenCell:
    """A cell whose trainings kept their best weights by dev.

    Args:
        dev: mean best dev score × 100 over its finished trials.
        headline: mean score in the table's leading column; None if there is none.
        chose_and_scored: tasks that chose the weights and are also test tasks.
    """

    label: str
    dev_task: str
    dev: float
    headline: float | None
    chose_and_scored: tuple[str, ...] = ()


def chosen_cells(sweep: SweepRecord, records: Mapping[str, Record], table: ResultTable) -> list[ChosenCell]:
    """Return the cells of a table that were selected on dev, in its order."""
    found = []
    for line in table.lines:
        trials = [trial for trial in sweep.cells.get(line.label, ()) if trial.key in records and trial.train in records]
        stages = [(restored(trial.train, records), restored(trial.key, records)) for trial in trials]
        known = [(train, scores) for train, scores in stages if isinstance(train, Train) and isinstance(scores, Scores)]
        picked = [(train, scores, dev) for train, scores in known if train.selection and (dev := records[train.key].dev_score) is not None]
        if picked:
            train, scores, _ = picked[0]
            assert train.selection is not None, "they are filtered"
            summary = line.cells[table.lead].summary
            found.append(
                ChosenCell(
                    label=line.label, dev_task=train.selection.name, dev=statistics.mean(dev for *_, dev in picked),
                    headline=None if summary is None else summary.mean, chose_and_scored=chosen_and_scored(train.selection, scores.tasks),
                )
            )  # fmt: skip
    return found


def selection_note(cells: Sequence[ChosenCell]) -> str:
    """Return the note on which score chose the weights, and whether it is also scored as test."""
    both = sorted({task for cell in cells for task in cell.chose_and_scored})
    if both:
        return f"{', '.join(both)} chose the weights and is scored as test, too: those scores flatter."
    return "Weights are chosen by the dev score, never by a test score."


def selection_rows(cells: Sequence[ChosenCell]) -> list[list[str]]:
    """Return the rows under SELECTION_HEADER."""
    return [
        [cell.label, cell.dev_task, f"{cell.dev:.2f}", "not defined" if cell.headline is None else f"{cell.headline:.2f}"] for cell in cells
    ]


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
