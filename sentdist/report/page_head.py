"""The head of a sweep's page: findings in sentences, facts on trials and training, gains over the untouched encoder."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sentdist.errors import counted, listed
from sentdist.evaluation.sts import mean_of_all
from sentdist.recipe.stage import Json
from sentdist.report.comparisons import AVERAGE, Comparison, corrected, in_words
from sentdist.report.score_rows import CellFacts, cell_facts, lead_tasks, seed_results
from sentdist.report.sweep_rows import sweep_rows, table_rows
from sentdist.report.tables import Line, ResultTable, build_table
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import DevCell, SweepRecord, TrialRecord, cells_by_dev

MOST_SPOKEN = 6  # rows that the head of a page mentions


def finding(sweep: SweepRecord, table: ResultTable, records: Mapping[str, Record]) -> list[str]:
    """Summarize how the cell of each method that dev chose compares with the baseline."""
    rows = spoken_rows(sweep, table, records)
    if said := verdicts(table, [line.label for line in rows]):
        return said
    return [f"{scored(rows[0], table)}."] if rows else []


def verdicts(table: ResultTable, labels: Sequence[str]) -> list[str]:
    """Return a sentence per compared row, and how the tests are corrected; [] if nothing is compared."""
    said = [one for label in labels if (one := table.verdict(label))]
    more = [f"The table has {counted(len(said) - MOST_SPOKEN, 'more row')}."] if len(said) > MOST_SPOKEN else []
    return [*said[:MOST_SPOKEN], *more, *filter(None, [corrected(table.num_tests)] if said else [])]


def spoken_rows(sweep: SweepRecord, table: ResultTable, records: Mapping[str, Record]) -> list[Line]:
    """Return one scored row per method (the cell that dev chose): headline method, other trained methods, the rest; baseline last."""
    methods = list(cast(Mapping[str, Json], sweep.recipe["methods"]))
    ranked = [cell.label for cell in cells_by_dev(sweep, records)]
    against = {line.method for line in table.lines if line.is_baseline}

    def place(line: Line) -> tuple[bool, bool, bool, int, int]:
        chosen = ranked.index(line.label) if line.label in ranked else len(ranked)
        is_known = line.method in methods
        return (
            line.method != sweep.recipe.get("headline"),
            line.method in against,
            line.is_fixed,
            methods.index(line.method) if is_known else len(methods),
            chosen,
        )

    scored_lines = (line for line in table.lines if line.cells[table.lead].summary is not None)
    first: dict[str, Line] = {}
    for line in sorted(scored_lines, key=place):
        first.setdefault(line.method, line)
    return list(first.values())


def scored(line: Line, table: ResultTable) -> str:
    """Return the score of a row in the leading column, in words."""
    summary = line.cells[table.lead].summary
    return f"{line.label} {'has no score' if summary is None else f'scores {summary.mean:.2f}'} ({column_words(table)})"


def rests_on(table: ResultTable, line: Line | None) -> str:
    """Return on how many seeds and test items a row's score in the leading column rests; "" for a row without a score."""
    if line is None or line.cells[table.lead].summary is None:
        return ""
    basis = [] if line.is_fixed else [counted(line.num_seeds, "seed")]
    basis += [counted(table.num_items[table.lead], "test item")] if table.lead in table.num_items else []
    return f"It rests on {' and '.join(basis)}." if basis else ""


def column_words(table: ResultTable) -> str:
    """Return the name of the leading column in words."""
    return f"average of {len(table.columns) - 1} tasks" if table.lead == AVERAGE else table.lead


def page_facts(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, str]:
    """Return the facts on a sweep that its recipe does not have (name -> value); values that vary are listed."""
    newest = max(records.values(), key=lambda record: record.created_at)
    versions = (
        f"{name} {newest.environment[name]}" for name in ("torch", "transformers", "ray", "deepspeed") if name in newest.environment
    )
    trainings = [record for record in records.values() if record.kind == "train"] or list(records.values())
    found = {
        "trials": str(len(sweep.trials)),
        "machine": listed(list(dict.fromkeys(map(_machine, trainings)))),
        "finished": newest.created_at.replace("T", " ").removesuffix("Z") + " UTC",
        "made with": ", ".join(versions),
        "commit": listed(list(dict.fromkeys(record.environment.get("commit", "") for record in trainings))),
    }
    return {name: value for name, value in found.items() if value}


def _machine(record: Record) -> str:
    """Processor, and GPUs if a training had any; the host name would mean nothing to others."""
    gpus, workers = record.runtime.get("gpus_per_worker"), record.runtime.get("workers", 1)
    parts = [record.environment.get("processor", "")]
    parts += [f"{workers} × {gpus:g} GPU" if gpus != 1 else f"{workers} GPU"] if isinstance(gpus, int | float) and gpus else []
    return ", ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The cell that dev chose minus the best untouched encoder, in the lead column of the report's first table, tested as there."""

    chosen: DevCell
    untouched: TrialRecord
    column: str
    compared: Comparison

    @property
    def is_shown(self) -> bool:
        """Whether the chosen cell is significantly better."""
        found = self.compared.differences[self.column]
        return found.difference > 0 and found.is_significant

    @property
    def line(self) -> str:
        """The comparison as a sentence."""
        return in_words(self.compared, self.column)


def gain_over_untouched(sweep: SweepRecord, store: ArtifactStore) -> Gain | None:
    """Test the cell that dev chose against the best untouched encoder; None if one of the two is missing."""
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
    """Return a warning if no trained row is above the untouched encoder, else "" (also if one of the two is not scored).

    Compares mean test scores over the lead tasks of the sweep.
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
    """Return a hint if the recipe names no baseline, and how to name one; "" if it does, or if nothing is scored."""
    if sweep.baseline is not None or not any(trial.key in records for trial in sweep.trials):
        return ""
    untouched = next((trial.method for trial in sweep.trials if trial.train is None), None)
    how = f"say `baseline: {untouched}`" if untouched else "add `base: {}` (the untouched encoder) to `methods`, and say `baseline: base`"
    return f"Nothing is tested against a baseline: {how} in the recipe. The same command then tests it."


def _is_untouched(facts: CellFacts) -> bool:
    return facts.untouched is not None and facts.untouched.initialization == "pretrained"
