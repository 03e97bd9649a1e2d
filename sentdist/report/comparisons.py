"""Compare the systems of a table column by column: references, tests, and the result in sentences."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sentdist.errors import DataError, listed
from sentdist.evaluation.items import Items, JointGroups, end_to_end, joint_groups
from sentdist.evaluation.significance import Difference, OtherTasks, Summary, against, over_tasks, summarize
from sentdist.evaluation.variation import ALPHA, Column, Entry, Floats, Interval
from sentdist.recipe.dotted import short_names
from sentdist.report.score_rows import Scalar, SystemRows, read_items
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.task import Measure, mean_of

AVERAGE = "Avg"
_MAIN = frozenset(kind.main.name for kind in TASK_KINDS.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class TableColumns:
    """The fitted columns of a table.

    Args:
        by_name: columns in the table's order, without those in which no row has a score; `measures`: their measures.
        sizes: task -> number of items and of groups, for tasks that have items.
        without_groups: tasks whose items do not say which belong together; each item is then its own group.
        joined: tasks of the average that share texts with other tasks of it.
    """

    by_name: Mapping[str, Column]
    measures: Mapping[str, Measure]
    sizes: Mapping[str, tuple[int, int]]
    without_groups: tuple[str, ...]
    joined: tuple[str, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """Notes on the items that matter for the tests."""
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
        """Number of test items of each column that has items; the average has those of all tasks."""
        of_tasks = {task: num_items for task, (num_items, _) in self.sizes.items()}
        return of_tasks | ({AVERAGE: sum(of_tasks.values())} if AVERAGE in self.by_name and of_tasks else {})

    def summary(self, name: str, label: str) -> Summary | None:
        """Return the scores of a system in a column over its seeds; None if it has none."""
        entries = self.by_name[name].entries if name in self.by_name else ()
        return next((summarize(one.scores.tolist()) for one in entries if one.label == label), None)

    def interval(self, name: str, label: str) -> Interval | None:
        """Return the 95 % interval of a system's mean in a column, within the range of the measure; None if it is not defined."""
        column = self.by_name.get(name)
        found = None if column is None else column.interval(label)
        if found is None:
            return None
        measure = self.measures[name]
        return replace(found, low=max(measure.lowest, found.low), high=min(measure.highest, found.high))


@dataclass(frozen=True, kw_only=True, eq=False)
class _TaskItems:
    """(G,) contributions of each run, by label and seed; weights and strata of the groups; labels with a run without items are left out.
    shared: what the groups of each run share with other tasks, see `Items.shared_by_group`."""

    of_run: Mapping[tuple[str, int], Floats]
    shared: Mapping[tuple[str, int], NDArray[np.int64]]
    weights: Floats
    strata: NDArray[np.intp]
    num_items: int
    has_groups: bool


def table_columns(systems: Sequence[SystemRows], measures: Mapping[str, Measure], *, average: bool) -> TableColumns:
    """Read the items of every system and task once, and fit every column.

    Args:
        measures: task -> measure, in the order of the columns.
        average: add a column with the mean over tasks.

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
    """Return the leading column of a table: the average, else the first TASK:MEASURE with a main measure, else the last."""
    if columns[-1] == AVERAGE:
        return AVERAGE
    return next((column for column in columns if column.partition(":")[2] in _MAIN), columns[-1])


def _joint(items: Sequence[_TaskItems | None]) -> JointGroups | None:
    """What the groups of tasks share, None for nothing; read from one run, since all runs are scored on the same items."""
    known = [one for one in items if one is not None]
    if len(known) < len(items) or not known:
        return None
    runs = (run for run in known[0].shared if all(run in one.shared for one in known))
    joint = (joint_groups([one.strata for one in known], [one.shared[run] for one in known]) for run in runs)
    return next((found for found in joint if found.tasks), None)


def _column(
    systems: Sequence[SystemRows], tasks: Sequence[str], items: Mapping[str, _TaskItems | None], joint: JointGroups | None
) -> Column | None:
    """The mean over tasks (or one task) of every system that has it. Tasks, or their parts, are strata with fixed shares; those that
    share groups are one stratum. joint: what tasks share."""
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
        of_run=of_run, shared=shared, weights=items.group_weights(), strata=items.strata, num_items=len(items.weights),
        has_groups=items.has_groups,
    )  # fmt: skip


def _check_same_items(task: str, one: tuple[str, Items], other: tuple[str, Items]) -> None:
    same = len(one[1].weights) == len(other[1].weights) and np.array_equal(one[1].identity, other[1].identity)
    if not same or not np.array_equal(one[1].groups, other[1].groups):
        raise DataError(
            where=f"report: items of {task!r}",
            found=f"{len(one[1].weights)} items for {one[0]!r}, {len(other[1].weights)} for {other[0]!r}, or other gold scores or groups",
            expected="one and the same test set",
            remedy="The task's file changed between two evaluations: evaluate the older encoder again.",
        )


Relation = Literal["baseline", "chosen"]
SPEAKS_OF = {
    "seeds and items": "other seeds and test items",
    "items": "other test items, with the same encoders",
    "seeds": "other seeds, on the same test items",
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One system against another: the difference in every column that both have, and of the average on other tasks.

    Args:
        relation: `other` is the row's reference ("baseline"), or the cell of the baseline that dev chose if it also chose `system`
            ("chosen").
    """

    system: str
    other: str
    relation: Relation
    differences: Mapping[str, Difference]
    other_tasks: OtherTasks | None = None

    def flipped(self) -> Comparison:
        """Return the same comparison with the two systems exchanged."""
        differences = {
            column: replace(
                one,
                difference=-one.difference,
                low=None if one.high is None else 0.0 - one.high,
                high=None if one.low is None else 0.0 - one.low,
            )
            for column, one in self.differences.items()
        }
        return replace(self, system=self.other, other=self.system, differences=differences, other_tasks=None)


def compare(
    systems: Sequence[SystemRows], pairs: Sequence[tuple[str, str]], columns: TableColumns, *, relation: Relation, tasks: Sequence[str]
) -> list[Comparison]:
    """Test each (system, other) in every column; p values are corrected over all of them together."""
    entries = {name: {entry.label for entry in column.entries} for name, column in columns.by_name.items()}
    named = {name: [pair for pair in pairs if set(pair) <= entries[name]] for name in columns.by_name}
    found = against(list(columns.by_name.values()), list(named.values()))
    by_pair: dict[tuple[str, str], dict[str, Difference]] = {pair: {} for pair in pairs}
    for (name, own), differences in zip(named.items(), found, strict=True):
        for pair, difference in zip(own, differences, strict=True):
            by_pair[pair][name] = difference
    rows = {system.label: system for system in systems}
    is_over_tasks = AVERAGE not in tasks  # else "Avg" is a printed column, which is not the mean of all others
    return [
        Comparison(
            system=pair[0], other=pair[1], relation=relation, differences=differences,
            other_tasks=_other_tasks(rows[pair[0]], rows[pair[1]], tasks) if is_over_tasks and AVERAGE in differences else None,
        )
        for pair, differences in by_pair.items()
    ]  # fmt: skip


def in_words(comparison: Comparison, column: str, *, exploratory: str = "") -> str:
    """Return a comparison as a sentence; `exploratory`: why it is no evidence, "" if it is."""
    system, other, found = comparison.system, comparison.other, comparison.differences[column]
    points = "less than 0.01 points" if _is_nothing(found.difference) else f"{abs(found.difference):.2f} points"
    if found.low is None or found.high is None or found.table_p is None:
        sentence = f"{system} is {distance(found.difference, other)}, which cannot be tested: {found.reason}"
    else:
        numbers = f"(95 % interval {found.low:+.2f} to {found.high:+.2f}, p {p_text(found.table_p)})"
        if found.is_significant:
            sentence = f"{system} is {'better' if found.difference > 0 else 'worse'} than {other} by {points} {numbers}"
        else:
            sentence = f"{system} is not shown to differ from {other}: {found.difference:+.2f} points {numbers}"
        if found.about == "items" and found.num_seeds is not None:
            sentence += "; other seeds were not tried"
        if found.by_signs:
            sentence += f"; {found.num_seeds} seeds are too few, {found.enough_by_signs} on one side would be enough"
        elif not found.is_significant and found.detectable is not None:
            sentence += f"; a difference of {found.detectable:.2f} would probably have been seen"
    return f"{sentence}." + (f" Exploratory: {exploratory}." if exploratory else "")


def corrected(num_tests: int) -> str:
    """Return the note on the correction of intervals and p; "" for one comparison."""
    return f"Intervals and p are corrected for {num_tests} comparisons." if num_tests > 1 else ""


def distance(points: float, other: str) -> str:
    """Return `0.41 points above other`, or `equal to other to two digits` if the difference rounds to 0."""
    if _is_nothing(points):
        return f"equal to {other} to two digits"
    return f"{abs(points):.2f} points {'above' if points > 0 else 'below'} {other}"


def _is_nothing(points: float) -> bool:
    return f"{abs(points):.2f}" == "0.00"


def p_text(p: float) -> str:
    """Return `= 0.012` or `< 0.001`; never 0, and with enough digits to show on which side of 5 % it lies."""
    if p < 0.001:
        return "< 0.001"
    rounded = (f"{p:.{digits}f}" for digits in itertools.count(3))
    return f"= {next(text for text in rounded if (float(text) < ALPHA) == (p < ALPHA))}"


def _other_tasks(system: SystemRows, other: SystemRows, tasks: Sequence[str]) -> OtherTasks | None:
    """The difference on other tasks, with seeds paired; None for rows of different seeds, where seeds and systems cannot be told apart."""
    ours, theirs = (np.array([[row.scores[task] for task in tasks] for row in one.complete(tasks)]) for one in (system, other))
    is_paired = not system.is_fixed and system.seeds == other.seeds and len(ours) == len(theirs)
    if not (system.is_fixed or other.is_fixed or is_paired):
        return None
    return over_tasks(ours - theirs)


@dataclass(frozen=True, kw_only=True)
class GridBaseline:
    """The method that rows of a grid are compared with: its title in tables, and the labels of rows, best on dev first."""

    method: str
    title: str
    by_dev: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class References:
    """Labels of rows and of the rows that they are compared with.

    Args:
        of: row -> its reference.
        chosen: cell of a method that dev chose -> cell of the baseline that dev chose, if `of` has another row.
        baselines: rows of the baseline; `title`: its name, "" without a baseline.
        keys: grid fields that the baseline varies, equal in a row and its reference; () if all rows have one reference.
        first: reference of rows without a reference at their own grid point; `elsewhere`: these rows.
    """

    of: Mapping[str, str]
    chosen: Mapping[str, str] = field(default_factory=dict)
    baselines: frozenset[str] = frozenset()
    title: str = ""
    keys: tuple[str, ...] = ()
    first: str | None = None
    elsewhere: tuple[str, ...] = ()

    @property
    def own(self) -> Mapping[str, str]:
        """`of` if the rows have several references, else {}."""
        return self.of if self.keys else {}

    @property
    def words(self) -> str:
        """Name of the reference, for a sentence or an axis."""
        return f"{self.title} at the same {_names(self.keys)}" if self.keys else self.title

    @property
    def note(self) -> str:
        """Note on which rows are compared; "" if all rows have one reference."""
        if not self.keys:
            return ""
        values = f"value{'s' if len(self.keys) > 1 else ''}"
        said = f"Each row is compared with {self.title} at the same {values} of {_names(self.keys)}, rows of {self.title} with none."
        return f"{said} {self.apart}".rstrip()

    @property
    def apart(self) -> str:
        """Note on the rows without a reference at their own grid point; "" for none."""
        if not self.elsewhere:
            return ""
        compared = "Not compared" if self.first is None else f"Compared with {self.first}"
        return f"{compared}, for want of a row at the same values: {listed(self.elsewhere)}."


def references(systems: Sequence[SystemRows], baseline: str | None, grid: GridBaseline | None) -> References:
    """Find the reference of each row.

    In a grid this is the one row of the grid's baseline with equal values of all fields that the baseline varies, or `baseline` if there
    is none. Without a grid, or if no row has another reference, all rows are compared with `baseline`.
    """
    of = {} if grid is None else _at_equal_points(systems, grid.method)
    if grid is None or set(of.values()) <= {baseline}:
        one = {} if baseline is None else {system.label: baseline for system in systems if system.label != baseline}
        return References(
            of=one, baselines=frozenset() if baseline is None else frozenset({baseline}), title=baseline or "", first=baseline
        )
    cells = [system for system in systems if system.method == grid.method]
    others = [system.label for system in systems if system.method != grid.method]
    found = {label: reference for label in others if (reference := of.get(label, baseline)) is not None}
    return References(
        of=found, chosen={label: best for label, best in _chosen(systems, grid).items() if found.get(label) != best},
        baselines=frozenset(cell.label for cell in cells), title=grid.title, keys=tuple(cells[0].params), first=baseline,
        elsewhere=tuple(label for label in others if label not in of),
    )  # fmt: skip


def _at_equal_points(systems: Sequence[SystemRows], method: str) -> dict[str, str]:
    """Row of another method -> the row of this method with equal values of all fields that this one varies, if there is just one."""
    cells = [system for system in systems if system.method == method]
    keys = list(cells[0].params) if cells else []
    at_point: dict[tuple[Scalar, ...], list[str]] = {}
    for cell in cells:
        at_point.setdefault(tuple(cell.params[key] for key in keys), []).append(cell.label)
    found: dict[str, str] = {}
    for system in systems:
        if keys and system.method != method and system.params.keys() >= set(keys):
            alike = at_point.get(tuple(system.params[key] for key in keys), [])
            found |= {system.label: alike[0]} if len(alike) == 1 else {}
    return found


def _chosen(systems: Sequence[SystemRows], grid: GridBaseline) -> dict[str, str]:
    """Cell of each other method that dev chose -> the chosen cell of the baseline."""
    method_of = {system.label: system.method for system in systems}
    best: dict[str, str] = {}
    for label in grid.by_dev:
        if label in method_of:
            best.setdefault(method_of[label], label)
    return {label: best[grid.method] for method, label in best.items() if grid.method in best and method != grid.method}


def _names(keys: Sequence[str]) -> str:
    """Fields by the short names used in labels of cells."""
    *before, last = short_names([keys]).values()
    return f"{', '.join(before)} and {last}" if before else last
