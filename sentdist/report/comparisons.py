"""Which systems of a table differ, column by column, and the sentences that say so."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sentdist.evaluation.significance import Difference, OtherTasks, against, over_tasks
from sentdist.evaluation.variation import ALPHA
from sentdist.report.columns import AVERAGE, TableColumns
from sentdist.report.score_rows import SystemRows

Relation = Literal["baseline", "chosen", "preceding"]
SPEAKS_OF = {
    "seeds and items": "other seeds and test items",
    "items": "other test items, with the same encoders",
    "seeds": "other seeds, on the same test items",
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One system against another: the difference in every column that both have, and what the average would be on other tasks.

    relation: `other` is the row's reference, what dev chose of the baseline where it chose `system`, or the row above.
    """

    system: str
    other: str
    relation: Relation
    differences: Mapping[str, Difference]
    other_tasks: OtherTasks | None = None

    def flipped(self) -> Comparison:
        """The same, said of `other`."""
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
    is_over_tasks = AVERAGE not in tasks  # else a column of its own, which is no mean of all the others
    return [
        Comparison(
            system=pair[0], other=pair[1], relation=relation, differences=differences,
            other_tasks=_other_tasks(rows[pair[0]], rows[pair[1]], tasks) if is_over_tasks and AVERAGE in differences else None,
        )
        for pair, differences in by_pair.items()
    ]  # fmt: skip


def in_words(comparison: Comparison, column: str, *, exploratory: str = "") -> str:
    """A comparison in plain words. exploratory: why it is no evidence."""
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
    """What intervals and p of a table are corrected for; "" for one comparison."""
    return f"Intervals and p are corrected for {num_tests} comparisons." if num_tests > 1 else ""


def distance(points: float, other: str) -> str:
    """`0.41 points above other`; `equal to other to two digits` for what rounds to nothing."""
    if _is_nothing(points):
        return f"equal to {other} to two digits"
    return f"{abs(points):.2f} points {'above' if points > 0 else 'below'} {other}"


def _is_nothing(points: float) -> bool:
    return f"{abs(points):.2f}" == "0.00"


def p_text(p: float) -> str:
    """`= 0.012`, or `< 0.001`; never 0, and with as many digits as show on which side of 5 % it lies."""
    if p < 0.001:
        return "< 0.001"
    rounded = (f"{p:.{digits}f}" for digits in itertools.count(3))
    return f"= {next(text for text in rounded if (float(text) < ALPHA) == (p < ALPHA))}"


def _other_tasks(system: SystemRows, other: SystemRows, tasks: Sequence[str]) -> OtherTasks | None:
    """What the difference would be on other tasks, seeds paired. None for rows of different seeds: a difference of seeds would pass for one
    of systems."""
    ours, theirs = (np.array([[row.scores[task] for task in tasks] for row in one.complete(tasks)]) for one in (system, other))
    is_paired = not system.is_fixed and system.seeds == other.seeds and len(ours) == len(theirs)
    if not (system.is_fixed or other.is_fixed or is_paired):
        return None
    return over_tasks(ours - theirs)
