"""What a report is made from: one row of scores for every trained (or untouched) encoder, and the per-item files behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sentdist.errors import DataError
from sentdist.evaluation.items import Items, items_of, joined
from sentdist.evaluation.means import mean_of_all
from sentdist.plan.measures import Measure
from sentdist.reading import drop_remedy, read_parquet

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """The scores (× 100) of one encoder.

    label: what tables call it; rows of one label are the seeds of one system. params: what the sweep turned (φ set, batch size, p).
    scores: task -> score, None where it is not defined. items: task -> its per-item parquet file (several: folds, laid end to end).
    is_fixed: an untouched checkpoint, which has one score and no seeds.
    """

    method: str
    label: str
    params: Mapping[str, Scalar]
    seed: int
    scores: Mapping[str, float | None]
    items: Mapping[str, Path | tuple[Path, ...]] | None = None
    is_fixed: bool = False

    def mean(self, tasks: Sequence[str]) -> float | None:
        """The mean over these tasks; None where one of them has no score."""
        return mean_of_all(self.scores.get(task) for task in tasks)


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """What one table of scores shows.

    columns: of `ResultRow.scores`, tasks or measures of one. measure: of all columns, or one that has their range, and whose unit says what
    they are. average: whether it has one, of its columns. is_compared: whether its rows are compared with each other. of_task: the one task
    whose measures the columns are. task_of: column -> the task whose test set it is about, by which leaks are marked.
    """

    title: str
    rows: Sequence[ResultRow]
    columns: Sequence[str]
    measure: Measure
    average: bool
    is_compared: bool = True
    of_task: str = ""
    task_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SystemRows:
    """The rows of one system, one a seed, in ascending order of the seeds."""

    label: str
    method: str
    params: Mapping[str, Scalar]
    is_fixed: bool
    rows: tuple[ResultRow, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(row.seed for row in self.rows)

    def complete(self, tasks: Sequence[str]) -> list[ResultRow]:
        """The rows that have a score of every task."""
        return [row for row in self.rows if row.mean(tasks) is not None]


def group_rows(rows: Sequence[ResultRow]) -> list[SystemRows]:
    """Rows by label, in order of first appearance. Raises DataError for a label that stands for two things or has a seed twice."""
    by_label: dict[str, list[ResultRow]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    systems = []
    for label, members in by_label.items():
        first = members[0]
        if any((row.method, dict(row.params), row.is_fixed) != (first.method, dict(first.params), first.is_fixed) for row in members):
            raise DataError(
                where=f"report: rows of {label!r}",
                found="rows that differ in method, parameters or is_fixed",
                expected="one label for one system",
                remedy="Put what differs into the label.",
            )
        seeds = sorted(row.seed for row in members)
        if len(set(seeds)) != len(seeds) or (first.is_fixed and len(seeds) > 1):
            raise DataError(
                where=f"report: rows of {label!r}",
                found=f"seeds {seeds}" + (" of an untouched checkpoint" if first.is_fixed else ""),
                expected="each seed once; an untouched checkpoint one row",
                remedy="A run that counts twice makes differences look surer than they are: pass each record once.",
            )
        ordered = tuple(sorted(members, key=lambda row: row.seed))
        systems.append(SystemRows(label=label, method=first.method, params=first.params, is_fixed=first.is_fixed, rows=ordered))
    return systems


def read_items(row: ResultRow, task: str) -> Items | None:
    """The items of one task, those of folds end to end; None where the row has none, or all have one value."""
    if row.items is None or task not in row.items:
        return None
    paths = row.items[task]
    folds = []
    for path in (paths,) if isinstance(paths, Path) else paths:
        table = read_parquet(path, expected="items of a score", remedy=drop_remedy(path.parents[1]))
        columns = {name: table[name].to_numpy() for name in table.column_names}
        folds.append(items_of(columns, task=task, where=f"report: items of {row.label!r}, task {task!r}"))
    known = [fold for fold in folds if fold is not None]
    return joined(known) if len(known) == len(folds) else None
