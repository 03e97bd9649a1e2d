"""What the end of a sweep says below its table: whether training has helped, shown by a test or at all, and whether anything is tested."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from sentdist.evaluation.means import mean_of_all
from sentdist.report.cell_facts import CellFacts, cell_facts
from sentdist.report.comparisons import Comparison, in_words
from sentdist.report.seed_results import lead_tasks, seed_results
from sentdist.report.sweep_rows import sweep_rows, table_rows
from sentdist.report.tables import build_table
from sentdist.store.chosen import DevCell, cells_by_dev
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, TrialRecord


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What dev chose minus the best untouched encoder, in the lead column of the report's first table, tested as the report does."""

    chosen: DevCell
    untouched: TrialRecord
    column: str
    compared: Comparison

    @property
    def is_shown(self) -> bool:
        """Whether the chosen cell is better, by more than chance explains."""
        found = self.compared.differences[self.column]
        return found.difference > 0 and found.is_significant

    @property
    def line(self) -> str:
        """The two and the verdict."""
        return in_words(self.compared, self.column)


def gain_over_untouched(sweep: SweepRecord, store: ArtifactStore) -> Gain | None:
    """Test what dev chose against the best untouched encoder. None: dev chose nothing, or the sweep scores no untouched encoder."""
    records = sweep.records(store)
    cells, scored = cells_by_dev(sweep, records), sweep_rows(sweep, store, records)
    rows = next(table_rows(scored), None)
    if not cells or rows is None:
        return None
    untouched = [row for row in rows.rows if _is_untouched(scored.facts[row.label]) and row.mean(rows.columns) is not None]
    if not untouched:
        return None
    other = max(untouched, key=lambda row: row.mean(rows.columns) or 0.0).label
    table = build_table(rows, baseline=other)
    compared = table.compared(cells[0].label)
    if compared is None:
        return None
    return Gain(chosen=cells[0], untouched=sweep.cells[other][0], column=table.lead, compared=compared)


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
    untouched = [cell for cell in means if _is_untouched(cell_facts(first[cell], records))]
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


def _is_untouched(facts: CellFacts) -> bool:
    return facts.untouched is not None and facts.untouched.initialization == "pretrained"
