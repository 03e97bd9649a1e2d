"""Which systems of a table differ, column by column, and the sentences that say so."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sentdist.evaluation.significance import Difference, OtherTasks, against, over_tasks
from sentdist.evaluation.variation import ALPHA
from sentdist.report.columns import AVERAGE, TableColumns
from sentdist.report.score_rows import SystemRows

Relation = Literal["baseline", "chosen", "preceding"]
SPEAKS_OF = {
    "seeds and items": "other seeds and test items",
    "items": "other test items, for these very encoders",
    "seeds": "other seeds, on these very test items",
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


def in_words(comparison: Comparison, column: str, *, num_tests: int, exploratory: str = "") -> str:
    """A comparison in plain words. num_tests: over how many its p is corrected; exploratory: why it is no evidence."""
    found = comparison.differences[column]
    sentence = f"{comparison.system} is {distance(found.difference, comparison.other)}"
    if found.low is None or found.high is None or found.table_p is None:
        sentence += f"; whether that is more than chance is not defined ({found.reason})."
    else:
        over = f" over the {num_tests} comparisons of this table" if num_tests > 1 else ""
        sentence += (
            f" (95 % interval {found.low:+.2f} to {found.high:+.2f} over {SPEAKS_OF[found.about]}; p "
            f"{p_text(found.table_p)}{over}): {_verdict(found)}."
        )
    if column == AVERAGE and (tasks := comparison.other_tasks) is not None:
        sentence += f" On other tasks such as these: {tasks.low:+.2f} to {tasks.high:+.2f} (p {p_text(tasks.p)})."
    return sentence + (f" Exploratory: {exploratory}." if exploratory else "")


def distance(points: float, other: str) -> str:
    """`0.41 points above other`; `equal to other to two digits` for what rounds to nothing."""
    if _is_nothing(points):
        return f"equal to {other} to two digits"
    return f"{abs(points):.2f} points {'above' if points > 0 else 'below'} {other}"


def distance_and_verdict(found: Difference, other: str) -> str:
    """`distance`, with what p over the table allows to say, in few words."""
    if found.p is None:
        verdict = "and there is nothing to test it by"
    elif found.is_significant:
        verdict = "yet distinguished from it" if _is_nothing(found.difference) else "more than chance explains"
    else:
        verdict = "not distinguished from chance"
    return f"{distance(found.difference, other)}, {verdict}"


def _is_nothing(points: float) -> bool:
    return f"{abs(points):.2f}" == "0.00"


def p_text(p: float) -> str:
    """`= 0.012`, or `< 0.001`; never 0, and with as many digits as show on which side of 5 % it lies."""
    if p < 0.001:
        return "< 0.001"
    rounded = (f"{p:.{digits}f}" for digits in itertools.count(3))
    return f"= {next(text for text in rounded if (float(text) < ALPHA) == (p < ALPHA))}"


def _verdict(found: Difference) -> str:
    """What p over the table allows to say, and what a difference would have to be to be seen."""
    untried = "; other seeds were not tried" if found.about == "items" and found.num_seeds is not None else ""
    if found.is_significant:
        return f"more than {'other test items explain' if found.about == 'items' else 'chance explains'}{untried}"
    if found.by_signs:
        return (
            f"not distinguished from chance: all {found.num_seeds} seeds lie on one side of the checkpoint, as so few may do by chance; "
            f"{found.enough_by_signs} on one side would do"
        )
    seen = "" if found.detectable is None else f"; a true difference of {found.detectable:.2f} points would be found in 4 of 5 such tables"
    return f"not distinguished from chance{untried}{seen}"


def _other_tasks(system: SystemRows, other: SystemRows, tasks: Sequence[str]) -> OtherTasks | None:
    """What the difference would be on other tasks, seeds paired. None for rows of different seeds: a difference of seeds would pass for one
    of systems."""
    ours, theirs = (np.array([[row.scores[task] for task in tasks] for row in one.complete(tasks)]) for one in (system, other))
    is_paired = not system.is_fixed and system.seeds == other.seeds and len(ours) == len(theirs)
    if not (system.is_fixed or other.is_fixed or is_paired):
        return None
    return over_tasks(ours - theirs)
