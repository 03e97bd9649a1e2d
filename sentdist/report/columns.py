"""How the rows of a table become what the test of significance takes: a column a task, and one of their average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sentdist.errors import DataError
from sentdist.evaluation.items import Items
from sentdist.evaluation.joint_groups import JointGroups, end_to_end, joint_groups
from sentdist.evaluation.summary import Summary, summarize
from sentdist.evaluation.variation import Column, Entry, Floats, Interval
from sentdist.plan.measures import Measure, mean_of
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.score_rows import SystemRows, read_items

AVERAGE = "Avg"
_MAIN = frozenset(kind.main.name for kind in TASK_KINDS.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class TableColumns:
    """by_name: columns in the table's order, without those in which no row has a score. measures: what their scores are. sizes: items and
    groups of each task that has them. without_groups: tasks whose items say nothing of what belongs together, so that each stands for
    itself. joined: tasks of the average that share texts with others of them."""

    by_name: Mapping[str, Column]
    measures: Mapping[str, Measure]
    sizes: Mapping[str, tuple[int, int]]
    without_groups: tuple[str, ...]
    joined: tuple[str, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """Sentences on the items, which a reader of the tests must know."""
        remarks = []
        if self.without_groups:
            remarks.append(f"Taken as independent, since their items do not say which belong together: {', '.join(self.without_groups)}.")
        if self.joined:
            remarks.append(f"In the mean, items that share texts count as one group across tasks, too: {', '.join(self.joined)}.")
        return remarks

    @property
    def has_items(self) -> bool:
        return bool(self.sizes)

    @property
    def num_items(self) -> dict[str, int]:
        """Test items behind each column, behind the average those of all tasks; without columns that have none."""
        of_tasks = {task: num_items for task, (num_items, _) in self.sizes.items()}
        return of_tasks | ({AVERAGE: sum(of_tasks.values())} if AVERAGE in self.by_name and of_tasks else {})

    def summary(self, name: str, label: str) -> Summary | None:
        """The scores of a system in a column over its seeds; None where it has none."""
        entries = self.by_name[name].entries if name in self.by_name else ()
        return next((summarize(one.scores.tolist()) for one in entries if one.label == label), None)

    def interval(self, name: str, label: str) -> Interval | None:
        """Where the mean of a system in a column lies, within the range of the measure; None where that cannot be said."""
        column = self.by_name.get(name)
        found = None if column is None else column.interval(label)
        if found is None:
            return None
        measure = self.measures[name]
        return replace(found, low=max(measure.lowest, found.low), high=min(measure.highest, found.high))


@dataclass(frozen=True, kw_only=True, eq=False)
class _TaskItems:
    """(G,) contributions of each run, by label and seed; the groups' weights and strata; labels of which some run has no items are left
    out. shared: of each run what its groups share with other tasks, see `Items.shared_by_group`."""

    of_run: Mapping[tuple[str, int], Floats]
    shared: Mapping[tuple[str, int], NDArray[np.int64]]
    weights: Floats
    strata: NDArray[np.intp]
    num_items: int
    has_groups: bool


def table_columns(systems: Sequence[SystemRows], measures: Mapping[str, Measure], *, average: bool) -> TableColumns:
    """Read the items of every system and task once, and fit every column.

    measures: of the tasks, in the order of their columns. average: also a column of their mean.

    Raises:
        DataError: two systems were scored on different items of a task.
    """
    tasks = list(measures)
    items = {task: _read(systems, task) for task in tasks}
    by_name = {task: _column(systems, [task], items, None) for task in tasks}
    joint = _joint([items[task] for task in tasks]) if average else None
    if average:
        measures = {**measures, AVERAGE: mean_of(list(measures.values()))}
        by_name[AVERAGE] = _column(systems, tasks, items, joint)
    return TableColumns(
        by_name={name: column for name, column in by_name.items() if column is not None},
        measures=measures,
        sizes={task: (one.num_items, len(one.weights)) for task, one in items.items() if one is not None},
        without_groups=tuple(task for task, one in items.items() if one is not None and not one.has_groups),
        joined=() if joint is None else tuple(tasks[place] for place in joint.tasks),
    )


def lead_column(columns: Sequence[str]) -> str:
    """The column that speaks for a table: the average; of TASK:MEASURE the first whose measure stands for its task; else the last."""
    if columns[-1] == AVERAGE:
        return AVERAGE
    return next((column for column in columns if column.partition(":")[2] in _MAIN), columns[-1])


def _joint(items: Sequence[_TaskItems | None]) -> JointGroups | None:
    """What the groups of tasks share; None where they share nothing. One run tells it for all: all are scored on the same items."""
    known = [one for one in items if one is not None]
    if len(known) < len(items) or not known:
        return None
    runs = (run for run in known[0].shared if all(run in one.shared for one in known))
    joint = (joint_groups([one.strata for one in known], [one.shared[run] for one in known]) for run in runs)
    return next((found for found in joint if found.tasks), None)


def _column(
    systems: Sequence[SystemRows], tasks: Sequence[str], items: Mapping[str, _TaskItems | None], joint: JointGroups | None
) -> Column | None:
    """The mean over tasks (or the one) of every system that has it. Tasks, or their parts, are strata: each keeps its share. Those that
    share groups are one. joint: what tasks share."""
    known = [one for task in tasks if (one := items[task]) is not None]
    has_all = len(known) == len(tasks)

    def of_groups(of_tasks: Sequence[Floats]) -> Floats:
        values_G = np.concatenate(of_tasks) / len(known)
        return values_G if joint is None else joint.sums(values_G)

    weights = of_groups([one.weights for one in known]) if has_all else ()
    stratum_of: NDArray[np.intp] | tuple[()] = ()
    if has_all:
        stratum_of = end_to_end([one.strata for one in known]) if joint is None else joint.strata
    entries = []
    for system in systems:
        rows = system.complete(tasks)
        if not rows:
            continue
        keys = [(system.label, row.seed) for row in rows]
        has_items = has_all and all(key in one.of_run for key in keys for one in known)
        entries.append(
            Entry(
                label=system.label,
                scores=np.array([row.mean(tasks) for row in rows], dtype=np.float64),
                seeds=() if system.is_fixed else tuple(row.seed for row in rows),
                contributions=np.stack([of_groups([one.of_run[key] for one in known]) for key in keys]) if has_items else None,
            )
        )
    return Column(entries, weights, stratum_of) if entries else None


def _read(systems: Sequence[SystemRows], task: str) -> _TaskItems | None:
    of_run: dict[tuple[str, int], Floats] = {}
    shared: dict[tuple[str, int], NDArray[np.int64]] = {}
    first: tuple[str, Items] | None = None
    for system in systems:
        runs = [(row.seed, read_items(row, task)) for row in system.rows]
        if any(items is None for _, items in runs):
            continue
        for seed, items in runs:
            assert items is not None
            first = first or (system.label, items)
            _check_same_items(task, first, (system.label, items))
            of_run[system.label, seed] = items.by_group()
            shared[system.label, seed] = items.shared_by_group()
    if first is None:
        return None
    items = first[1]
    return _TaskItems(
        of_run=of_run,
        shared=shared,
        weights=items.group_weights(),
        strata=items.strata,
        num_items=len(items.weights),
        has_groups=items.has_groups,
    )


def _check_same_items(task: str, one: tuple[str, Items], other: tuple[str, Items]) -> None:
    same = len(one[1].weights) == len(other[1].weights) and np.array_equal(one[1].identity, other[1].identity)
    if not same or not np.array_equal(one[1].groups, other[1].groups):
        raise DataError(
            where=f"report: items of {task!r}",
            found=f"{len(one[1].weights)} items for {one[0]!r}, {len(other[1].weights)} for {other[0]!r}, or other gold scores or groups",
            expected="one and the same test set",
            remedy="The task's file has changed between two evaluations: evaluate the older encoder again.",
        )
