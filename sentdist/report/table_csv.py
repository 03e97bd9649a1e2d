"""A result table as CSV: its scores, and its comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from sentdist.report.columns import AVERAGE
from sentdist.report.tables import ResultTable
from sentdist.table_text import csv_text


def to_csv(table: ResultTable) -> str:
    """One line a system; for every column its mean, sd, 95 % interval with what it is over, and how many test items training data hold."""
    params = sorted({name for line in table.lines for name in line.params})
    parts = ("mean", "sd", "low", "high", "interval over", "items leaked")
    named = (f"{column} {part}" for column in table.columns for part in parts)
    rows: list[list[object]] = [["label", "method", *params, "num_seeds", "is_fixed", "exploratory", *named]]
    for line in table.lines:
        values: list[object] = [
            line.label,
            line.method,
            *(line.params.get(name, "") for name in params),
            line.num_seeds,
            line.is_fixed,
            line.exploratory,
        ]
        for column in table.columns:
            cell = line.cells[column]
            summary, interval = cell.summary, cell.interval
            values += ["" if summary is None else _number(summary.mean), "" if summary is None else _number(summary.sd)]
            values += ["", "", ""] if interval is None else [_number(interval.low), _number(interval.high), interval.about]
            values += ["" if cell.leaked is None else str(cell.leaked.num_leaked)]
        rows.append(values)
    return csv_text(rows)


COMPARED = (
    "system",
    "against",
    "relation",
    "task",
    "speaks of",
    "difference",
    "low",
    "high",
    "p over table",
    "p alone",
    "detectable",
    "reason",
)


def comparisons_to_csv(table: ResultTable) -> str:
    """One line a difference: its interval and p over all of its relation in the table (`chosen` counts with `baseline`), its p alone, and
    what would have been seen."""
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
