"""Build result tables: scores over seeds, differences, best rows, notes; also the brief table, CSV files and lists of tests."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sentdist.errors import counted
from sentdist.evaluation.significance import BestRows, Difference, Summary, may_be_best
from sentdist.evaluation.sts import mean_of_all
from sentdist.evaluation.variation import Column, Interval
from sentdist.report.comparisons import (
    AVERAGE,
    Comparison,
    GridBaseline,
    References,
    TableColumns,
    compare,
    corrected,
    in_words,
    lead_column,
    references,
    table_columns,
)
from sentdist.report.leaks import Leaked
from sentdist.report.score_rows import ResultRow, Scalar, SystemRows, TableRows, group_rows, lead_tasks, seed_results
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord
from sentdist.tasks.cards import TASKS
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.text import csv_text


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score of a table.

    Args:
        summary: over seeds; None: not defined.
        standing: "best" of its column, "tied" with the best (see `may_be_best`), or "".
        leaked: test items in the training data; None if none were found or leaks were not checked.
    """

    summary: Summary | None
    interval: Interval | None
    against_baseline: Difference | None
    standing: str = ""
    leaked: Leaked | None = None

    @property
    def sd(self) -> float | None:
        """Standard deviation over seeds, as shown; None if all seeds have one score and there is no interval: ± 0.00 would look certain."""
        sd = None if self.summary is None else self.summary.sd
        return None if sd is None or (self.interval is None and f"{sd:.2f}" == "0.00") else sd


@dataclass(frozen=True, kw_only=True)
class Line:
    """One system of a table; `cells` has the tasks and, if wanted, the average.

    Args:
        exploratory: why it is no evidence; "" if it is.
        reference: the row it is compared with, if a table has several references.
    """

    label: str
    method: str
    params: Mapping[str, Scalar]
    num_seeds: int
    is_fixed: bool
    is_baseline: bool
    exploratory: str
    cells: Mapping[str, Cell]
    reference: str = ""


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """An aggregated table.

    Args:
        unit: name of the score; `notes` explain the marks.
        baseline: reference of all rows, or in a grid of the rows without a reference at their own point.
        num_items: column -> number of test items.
        of_task: the task whose measures are the columns; "" for several tasks.
    """

    title: str
    unit: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    baseline: str | None
    references: References
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]
    num_items: Mapping[str, int]
    of_task: str = ""

    @property
    def lead(self) -> str:
        """The leading column of the table."""
        return lead_column(self.columns)

    def lead_score(self, row: ResultRow) -> float | None:
        """Return the score of a row in the leading column."""
        return row.scores.get(self.lead, row.mean(self.columns[:-1]) if self.lead == AVERAGE else None)

    @property
    def headings(self) -> tuple[str, ...]:
        """Titles of the columns; measures of one task without its name, which is in the table's title."""
        return tuple(column.removeprefix(f"{self.of_task}:") for column in self.columns)

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence per comparison."""
        chosen = (f"Of what dev chose: {self._said(one)}" for one in self._led("chosen"))
        return (*self.verdicts.values(), *chosen)

    @property
    def verdicts(self) -> Mapping[str, str]:
        """Row -> sentence that compares it with its reference in the lead column."""
        return {one.system: self._said(one) for one in self._led("baseline")}

    @property
    def num_tests(self) -> int:
        """Number of comparisons for which intervals and p are corrected."""
        return sum(one.p is not None for pair in self.comparisons for one in pair.differences.values())

    def verdict(self, label: str) -> str:
        """Return the comparison of `compared` as a sentence; "" if there is none."""
        found = self.compared(label)
        return "" if found is None else self._said(found)

    def _led(self, relation: str) -> list[Comparison]:
        return [one for one in self.comparisons if one.relation == relation and self.lead in one.differences]

    def _said(self, found: Comparison) -> str:
        """The comparison as a sentence; its subject is the trained row if the other is an untouched encoder."""
        doubts = "; ".join(doubt for label in (found.system, found.other) if (doubt := self.line(label).exploratory))
        is_flipped = self.line(found.system).is_fixed and not self.line(found.other).is_fixed
        return in_words(found.flipped() if is_flipped else found, self.lead, exploratory=doubts)

    def line(self, label: str) -> Line:
        """Return the line of a system."""
        return next(line for line in self.lines if line.label == label)

    def compared(self, label: str) -> Comparison | None:
        """Return how a system compares in the lead column: the cell that dev chose with that of the baseline, else with its reference."""
        found = {one.relation: one for one in self.comparisons if one.system == label and self.lead in one.differences}
        return found.get("chosen", found.get("baseline"))


def build_table(
    given: TableRows,
    *,
    baseline: str | None,
    grid: GridBaseline | None = None,
    exploratory: Mapping[str, str] | None = None,
    leaked: Mapping[tuple[str, str], Leaked] | None = None,
) -> ResultTable:
    """Aggregate rows into a table.

    Args:
        baseline: label of the row that arrows refer to.
        grid: arrows refer to the row at the same grid point, see `references`.
        exploratory: label -> why rows are missing; rows with fewer seeds than others are found here.
        leaked: (label, column) -> test items in its training data.
    """
    systems, tasks = group_rows(given.rows), given.columns
    columns = (*tasks, AVERAGE) if given.average else tuple(tasks)
    statistics = table_columns(systems, dict.fromkeys(tasks, given.measure), average=given.average)
    doubts = _doubts(systems, exploratory or {})
    rows_of = references(systems, baseline, grid)
    to_baseline, to_chosen = _to_references(systems, rows_of, statistics, tasks)
    made = ResultTable(
        title=given.title, unit=given.measure.unit, columns=columns,
        lines=tuple(_lines(systems, columns, rows_of, to_baseline, statistics, doubts, leaked or {})), baseline=baseline,
        references=rows_of, comparisons=(*to_baseline, *to_chosen), notes=(), num_items=statistics.num_items,
        of_task=given.of_task,
    )  # fmt: skip
    return replace(made, notes=tuple(_notes(given, systems, statistics, rows_of, num_tests=made.num_tests, is_leaked=bool(leaked))))


def _to_references(
    systems: Sequence[SystemRows], rows_of: References, statistics: TableColumns, tasks: Sequence[str]
) -> tuple[list[Comparison], list[Comparison]]:
    """Compare rows with their references, and cells that dev chose with each other; p values are corrected over both together."""
    pairs = [*rows_of.of.items(), *rows_of.chosen.items()]
    compared = compare(systems, pairs, statistics, relation="baseline", tasks=tasks)
    end = len(rows_of.of)
    return compared[:end], [replace(one, relation="chosen") for one in compared[end:]]


def _doubts(systems: Sequence[SystemRows], given: Mapping[str, str]) -> dict[str, str]:
    """Label -> why it is exploratory: the given reason, or fewer seeds than others."""
    most = max((len(system.rows) for system in systems if not system.is_fixed), default=0)
    doubts = {}
    for system in systems:
        few = f"{system.label} has {counted(len(system.rows), 'seed')}, others have {most}"
        is_short = not system.is_fixed and len(system.rows) < most
        if reason := given.get(system.label, few if is_short else ""):
            doubts[system.label] = reason
    return doubts


def _lines(
    systems: Sequence[SystemRows],
    columns: Sequence[str],
    rows_of: References,
    comparisons: Sequence[Comparison],
    statistics: TableColumns,
    doubts: Mapping[str, str],
    leaked: Mapping[tuple[str, str], Leaked],
) -> Iterator[Line]:
    against_baseline = {comparison.system: comparison.differences for comparison in comparisons}
    best = {
        name: _bold(column, _significantly_below(comparisons, name), num_columns=len(columns))
        for name, column in statistics.by_name.items()
        if len(column.entries) > 1
    }
    for system in systems:
        differences = against_baseline.get(system.label, {})
        yield Line(
            label=system.label,
            method=system.method,
            params=system.params,
            num_seeds=len(system.rows),
            is_fixed=system.is_fixed,
            is_baseline=system.label in rows_of.baselines,
            exploratory=doubts.get(system.label, ""),
            cells={
                column: Cell(
                    summary=(summary := statistics.summary(column, system.label)),
                    interval=None if summary is None else statistics.interval(column, system.label),
                    against_baseline=differences.get(column),
                    standing=_standing(system.label, best.get(column)),
                    leaked=leaked.get((system.label, column)),
                )
                for column in columns
            },
            reference=rows_of.own.get(system.label, ""),
        )


def _significantly_below(comparisons: Sequence[Comparison], name: str) -> frozenset[str]:
    """Rows that an arrow in a column puts below another: rows with ↓, and references of rows with ↑."""
    found = [(one, one.differences[name]) for one in comparisons if name in one.differences and one.differences[name].is_significant]
    return frozenset(one.system if difference.difference < 0 else one.other for one, difference in found)


def _bold(column: Column, below: frozenset[str], *, num_columns: int) -> BestRows:
    """`may_be_best`, plus untested rows that print the same number as the best.

    below: rows that the arrows put below another row. Each of the two corrections errs in 5 of 100 tables; a row that either of them finds
    worse is not bold, because an arrow and bold print would contradict each other.
    """
    found = may_be_best(column, num_columns=num_columns)
    worse = found.worse | (below - {found.highest})
    printed = {entry.label: f"{mean:.2f}" for entry, mean in zip(column.entries, column.means, strict=True)}
    alike = {label for label, one in printed.items() if one == printed[found.highest] and label not in worse}
    return BestRows(found.highest, tied=(found.tied - below) | alike, worse=worse)


def _standing(label: str, best: BestRows | None) -> str:
    """Whether a row is "best", "tied" with the best, or neither ("")."""
    if best is None:
        return ""
    return "best" if label == best.highest else "tied" if label in best.tied else ""


def _notes(
    given: TableRows, systems: Sequence[SystemRows], statistics: TableColumns, rows_of: References, *, num_tests: int, is_leaked: bool
) -> list[str]:
    """The notes below a table, on its marks and numbers."""
    seeds = sorted({len(system.rows) for system in systems if not system.is_fixed})
    spread = "" if seeds in ([], [1]) else f"; mean ± standard deviation over {_range(seeds)} seeds"
    notes = [f"{given.measure.unit[:1].upper()}{given.measure.unit[1:]}{spread}."]
    if rows_of.title:
        notes.append(f"↑ ↓: better or worse than {rows_of.words} (p below 0.05). {corrected(num_tests)}".rstrip())
    if rows_of.note:
        notes.append(rows_of.note)
    and_arrows = "; no arrow puts it below another row" if rows_of.title else ""
    tested = any(int(column.is_testable.sum()) > 1 for column in statistics.by_name.values())
    notes.append(
        f"Bold: may be the best of its column (model confidence set, 95 % over the table{and_arrows})."
        if tested
        else "Bold: the highest of its column."
    )
    if over := _varied(statistics, has_seeds=any(number > 1 for number in seeds)):
        notes.append(f"[low, high]: 95 % interval of each score alone, over {over}.")
    if any(
        not column.is_fixed[row] and column.is_copies[row] for column in statistics.by_name.values() for row in range(len(column.entries))
    ):
        notes.append(
            "No ± and no interval: all seeds score alike there; such a row cannot be tested, and is bold where it equals the best."
        )
    if 1 in seeds:
        notes.append("One seed: what other seeds would give is not known, and intervals and p of its rows are about these encoders alone.")
    notes += statistics.remarks
    if is_leaked:
        notes.append(
            "Leaked: pairs or queries of the test that are in the training data, as written or except for case and "
            "punctuation; nearly: with small changes."
        )
    incomplete = [system.label for system in systems if len(system.complete(given.columns)) < len(system.rows)]
    if incomplete and given.average:
        notes.append(f"Left out of the average, since a seed lacks a task: {', '.join(incomplete)}.")
    return notes


def _varied(statistics: TableColumns, *, has_seeds: bool) -> str:
    """What the intervals of a table are over; "" if it has none."""
    if not has_seeds:
        return "other test items, with the same encoders" if statistics.has_items else ""
    return (
        "other training seeds and test items; of a row with one seed, or none, over test items alone"
        if statistics.has_items
        else "other training seeds"
    )


def _range(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"up to {numbers[-1]}"


def mark(found: Difference | None) -> str:
    """Return `↑` or `↓` if a difference from the baseline is significant over the whole table, else ""."""
    return "" if found is None or not found.is_significant else "↑" if found.difference > 0 else "↓"


def interval_text(interval: Interval | None) -> str:
    """Return `[low, high]`, or "" for None."""
    return "" if interval is None else f"[{interval.low:.2f}, {interval.high:.2f}]"


def leaked_text(cell: Cell) -> str:
    """Return the leaked items of a cell in words; "" if there are none."""
    return "" if cell.leaked is None else cell.leaked.words


def num_seeds(line: Line) -> str:
    """Return the number of seeds of a row; `fixed` if nothing was trained."""
    return "fixed" if line.is_fixed else str(line.num_seeds)


@dataclass(frozen=True, kw_only=True)
class BriefTable:
    """Columns: number of seeds with scores of all folds, main score (× 100) of each task, the leading average if there is one; leaked
    test items are noted beside a score."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def brief_table(
    sweep: SweepRecord, records: Mapping[str, Record], *, leaked: Mapping[tuple[str, str], Leaked] = MappingProxyType({})
) -> BriefTable:
    """Build a table with a row per cell (method and grid values) over its seeds, each the mean of its folds, in sweep order.

    Args:
        leaked: (cell, task) -> test items in its training data.
    """
    seeds = seed_results(sweep, records)
    named = dict.fromkeys(task for one in seeds for kind in TASK_KINDS for task in one.tasks(kind))
    tasks = [*(task for task in TASKS if task in named), *(task for task in named if task not in TASKS)]
    lead, averaged = lead_tasks(seeds)
    average = (lead,) if len(averaged) > 1 else ()
    rows = []
    for cell in sweep.cells:
        found = [one.results for one in seeds if one.cell == cell]
        values = [[results.get(task) for results in found] for task in tasks]
        if average:
            values.append([mean_of_all(results.get(task) for task in averaged) for results in found])
        leaks = [leaked.get((cell, task)) for task in (*tasks, *average)]
        shown = (spread if leak is None else f"{spread}, {leak.words}" for spread, leak in zip(map(_spread, values), leaks, strict=True))
        rows.append((cell, str(len(found)), *shown))
    return BriefTable(columns=("system", "n", *tasks, *average), rows=tuple(rows))


def _spread(values: list[float | None]) -> str:
    """Mean ± deviation over the seeds with a score; no deviation if it is 0, since ± 0.00 would look certain."""
    defined = [value for value in values if value is not None]
    if not defined:
        return "–"
    mean, deviation = f"{statistics.mean(defined):.2f}", f"{statistics.stdev(defined) if len(defined) > 1 else 0.0:.2f}"
    return mean if deviation == "0.00" else f"{mean} ± {deviation}"


def to_csv(table: ResultTable) -> str:
    """Return a CSV with a line per system: for each column mean, sd, 95 % interval and what it is over, number of leaked test items."""
    params = sorted({name for line in table.lines for name in line.params})
    parts = ("mean", "sd", "low", "high", "interval over", "items leaked")
    named = (f"{column} {part}" for column in table.columns for part in parts)
    rows: list[list[object]] = [["label", "method", *params, "num_seeds", "is_fixed", "exploratory", *named]]
    for line in table.lines:
        at = (line.params.get(name, "") for name in params)
        values: list[object] = [line.label, line.method, *at, line.num_seeds, line.is_fixed, line.exploratory]
        for column in table.columns:
            cell = line.cells[column]
            summary, interval = cell.summary, cell.interval
            values += ["" if summary is None else _number(summary.mean), "" if summary is None else _number(summary.sd)]
            values += ["", "", ""] if interval is None else [_number(interval.low), _number(interval.high), interval.about]
            values += ["" if cell.leaked is None else str(cell.leaked.num_leaked)]
        rows.append(values)
    return csv_text(rows)


COMPARED = (
    "system", "against", "relation", "task", "speaks of", "difference", "low", "high", "p over table", "p alone", "detectable", "reason",
)  # fmt: skip


def comparisons_to_csv(table: ResultTable) -> str:
    """Return a CSV with a line per difference: interval and p corrected over its relation in the table (`chosen` together with `baseline`),
    uncorrected p, detectable difference."""
    rows: list[Sequence[str]] = [COMPARED]
    for comparison in table.comparisons:
        names = (comparison.system, comparison.other, comparison.relation)
        for task, found in comparison.differences.items():
            numbers = [_number(one) for one in (found.difference, found.low, found.high, found.table_p, found.p, found.detectable)]
            rows.append([*names, task, found.about, *numbers, found.reason])
        if (tasks := comparison.other_tasks) is not None:
            numbers = [_number(one) for one in (comparison.differences[AVERAGE].difference, tasks.low, tasks.high)]
            rows.append([*names, AVERAGE, "other tasks", *numbers, "", _number(tasks.p), "", ""])
    return csv_text(rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
