"""What a table of results says: scores over seeds, what differs from what, who is best, and the sentences beneath it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentdist.errors import DataError, counted, duration
from sentdist.evaluation.significance import Difference, may_be_best
from sentdist.evaluation.summary import Summary, summarize
from sentdist.evaluation.variation import Interval
from sentdist.plan.measures import Measure
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.columns import AVERAGE, TableColumns, complete_rows, lead_column, table_columns
from sentdist.report.comparisons import Comparison, compare, in_words
from sentdist.report.leaks import Leaked
from sentdist.report.score_rows import ResultRow, Scalar, SystemRows, group_rows


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score of a table; summary None: not defined. standing: `best` of its column, `tied` with the best (it may be the best too: see
    `may_be_best`), or neither; is_told_from_best: not tied because a test says so, rather than for want of one. leaked: what of the test
    its training data hold; None where nothing was found, or leaks were not looked for."""

    summary: Summary | None
    interval: Interval | None
    against_baseline: Difference | None
    standing: str = ""
    is_told_from_best: bool = False
    leaked: Leaked | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """One system of a table; `cells` has the tasks and, where asked for, the average. exploratory: why it is no evidence; "" if it is."""

    label: str
    method: str
    params: Mapping[str, Scalar]
    num_seeds: int
    is_fixed: bool
    is_baseline: bool
    exploratory: str
    cells: Mapping[str, Cell]


@dataclass(frozen=True, kw_only=True)
class SharedStages:
    """How much of a sweep was shared: trainings of entropy encoders that its cells mention, and those that differ."""

    num_mentioned: int
    num_different: int
    saved_s: float | None = None

    def sentence(self) -> str:
        """Plain words for the report."""
        spared = self.num_mentioned - self.num_different
        text = f"The sweep mentions {self.num_mentioned} trainings of entropy encoders; "
        if not spared:
            text += "all of them differ, so nothing could be shared"
        else:
            text += f"only {self.num_different} of them differ, so {spared} trainings were never run"
            text += f" ({100 * spared / self.num_mentioned:.0f} % of them"
            text += f", about {duration(self.saved_s)} of work)" if self.saved_s is not None else ")"
        return text + "."


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """An aggregated table. `unit` names the score; `verdicts` say of each system in words how it compares with the baseline in the lead
    column, `remarks` what else there is to say; `notes` explain the marks."""

    title: str
    unit: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    baseline: str | None
    comparisons: tuple[Comparison, ...]
    verdicts: Mapping[str, str]
    remarks: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def lead(self) -> str:
        """The column that speaks for the table."""
        return lead_column(self.columns)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What stands beneath the table."""
        return (*self.verdicts.values(), *self.remarks)

    def line(self, label: str) -> Line:
        """The line of one system."""
        return next(line for line in self.lines if line.label == label)


def build_table(
    rows: Sequence[ResultRow],
    *,
    title: str,
    tasks: Sequence[str],
    baseline: str | None,
    measure: Measure = TASK_KINDS["sts"].main,
    average: bool = True,
    preceding: bool = True,
    shared: SharedStages | None = None,
    exploratory: Mapping[str, str] | None = None,
    leaked: Mapping[tuple[str, str], Leaked] | None = None,
) -> ResultTable:
    """Aggregate rows into a table.

    `baseline` is the label of the row that arrows refer to; `preceding` also tests each line against the one above it, for the CSV.
    measure: of all columns, or one that has their range, and whose unit says what they are.
    exploratory: label -> why its rows are not all that were planned; fewer seeds than others have is found here. leaked: (label, task)
    -> how much of the test its training data hold. Raises DataError when the baseline is not among the rows, or a task is in none of them.
    """
    systems = group_rows(rows)
    _check(systems, tasks, baseline, title)
    columns = (*tasks, AVERAGE) if average else tuple(tasks)
    found = table_columns(systems, dict.fromkeys(tasks, measure), average=average)
    doubts = _doubts(systems, exploratory or {})
    against_baseline = [(system.label, baseline) for system in systems if baseline is not None and system.label != baseline]
    in_order = [(system.label, above.label) for above, system in itertools.pairwise(systems) if preceding]
    to_baseline = compare(systems, against_baseline, found, relation="baseline", tasks=tasks)
    to_preceding = compare(systems, in_order, found, relation="preceding", tasks=tasks)
    headline = lead_column(columns)
    num_tests = sum(one.p is not None for comparison in to_baseline for one in comparison.differences.values())
    verdicts = {
        comparison.system: in_words(
            comparison,
            headline,
            num_tests=num_tests,
            exploratory="; ".join(doubt for label in (comparison.system, comparison.other) if (doubt := doubts.get(label))),
        )
        for comparison in to_baseline
        if headline in comparison.differences
    }
    return ResultTable(
        title=title,
        unit=measure.unit,
        columns=columns,
        lines=tuple(_lines(systems, columns, tasks, baseline, to_baseline, found, doubts, leaked or {})),
        baseline=baseline,
        comparisons=(*to_baseline, *to_preceding),
        verdicts=verdicts,
        remarks=(shared.sentence(),) if shared else (),
        notes=tuple(_notes(systems, tasks, found, unit=measure.unit, baseline=baseline, average=average, leaked=leaked or {})),
    )


def _doubts(systems: Sequence[SystemRows], given: Mapping[str, str]) -> dict[str, str]:
    """label -> why it is exploratory: what was given, or fewer seeds than others have."""
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
    tasks: Sequence[str],
    baseline: str | None,
    comparisons: Sequence[Comparison],
    found: TableColumns,
    doubts: Mapping[str, str],
    leaked: Mapping[tuple[str, str], Leaked],
) -> Iterator[Line]:
    against_baseline = {comparison.system: comparison.differences for comparison in comparisons}
    best = {name: may_be_best(column, num_columns=len(columns)) for name, column in found.by_name.items() if len(column.entries) > 1}
    for system in systems:
        differences = against_baseline.get(system.label, {})
        yield Line(
            label=system.label,
            method=system.method,
            params=system.params,
            num_seeds=len(system.rows),
            is_fixed=system.is_fixed,
            is_baseline=system.label == baseline,
            exploratory=doubts.get(system.label, ""),
            cells={
                column: Cell(
                    summary=(summary := _summary(system, column, tasks)),
                    interval=None if summary is None else found.interval(column, system.label),
                    against_baseline=differences.get(column),
                    standing=_standing(system.label, best.get(column)),
                    is_told_from_best=column in best and system.label in best[column][2],
                    leaked=leaked.get((system.label, column)),
                )
                for column in columns
            },
        )


def _summary(system: SystemRows, column: str, tasks: Sequence[str]) -> Summary | None:
    scores = system.averages(tasks) if column == AVERAGE else system.scores(column)
    return summarize(scores) if scores else None


def _standing(label: str, best: tuple[str, frozenset[str], frozenset[str]] | None) -> str:
    """Rows that cannot be tested are tied with none; the highest mean is the best whatever a test says."""
    if best is None:
        return ""
    return "best" if label == best[0] else "tied" if label in best[1] else ""


def _notes(
    systems: Sequence[SystemRows],
    tasks: Sequence[str],
    found: TableColumns,
    *,
    unit: str,
    baseline: str | None,
    average: bool,
    leaked: Mapping[tuple[str, str], Leaked],
) -> list[str]:
    seeds = sorted({len(system.rows) for system in systems if not system.is_fixed})
    spread = "" if seeds in ([], [1]) else f"; mean ± standard deviation over {_range(seeds)} seeds"
    notes = [f"{unit}{spread}."]
    if baseline is not None:
        notes.append(f"↑ ↓: above or below {baseline}, more than chance explains (5 %, over all comparisons of the table).")
    tested = any(int(column.is_testable.sum()) > 1 for column in found.by_name.values())
    notes.append(
        "Bold: may be the best of its column (model confidence set, 95 % over the table)." if tested else "Bold: the highest of its column."
    )
    if over := _varied(found, has_seeds=any(number > 1 for number in seeds)):
        notes.append(f"[low, high]: 95 % interval over {over}.")
    if 1 in seeds:
        notes.append("One seed: what other seeds would give is not known, and such rows are compared for these very encoders.")
    if found.without_groups:
        notes.append(f"Taken as independent, since their items do not say which belong together: {', '.join(found.without_groups)}.")
    if leaked:
        notes.append(
            "Leaked: the test's pairs or queries that stand in the training data, as written or but for case and punctuation; near: with small changes."
        )
    incomplete = [] if not average else [system.label for system in systems if len(complete_rows(system, tasks)) < len(system.rows)]
    if incomplete:
        notes.append(f"Some seed lacks a task, and is left out of the average: {', '.join(incomplete)}.")
    return notes


def _varied(found: TableColumns, *, has_seeds: bool) -> str:
    """What the intervals of a table speak of; "" where it has none."""
    if not has_seeds:
        return "other test items, for these very encoders" if found.has_items else ""
    return (
        "other training seeds and test items; of a row with one seed, or none, over test items alone"
        if found.has_items
        else "other training seeds"
    )


def _check(systems: Sequence[SystemRows], tasks: Sequence[str], baseline: str | None, title: str) -> None:
    labels = [system.label for system in systems]
    if not systems or not tasks:
        raise DataError(where=f"table {title!r}", found="no rows or no tasks", expected="at least one of each", remedy="Evaluate first.")
    if baseline is not None and baseline not in labels:
        raise DataError(
            where=f"table {title!r}: baseline", found=repr(baseline), expected=f"one of {labels}", remedy="Name the row by its label."
        )
    scored = {task for system in systems for row in system.rows for task in row.scores}
    unknown = [task for task in tasks if task not in scored]
    if unknown:
        raise DataError(
            where=f"table {title!r}: tasks", found=f"{unknown}, of which no row has a score", expected=f"some of {sorted(scored)}",
            remedy="Check the spelling, or evaluate this task.",
        )  # fmt: skip


def _range(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"up to {numbers[-1]}"
