"""Whether an encoder is better than the one that it was trained from, by its own scores on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sentdist.evaluation.items import Scored
from sentdist.evaluation.significance import Difference
from sentdist.plan.measures import SATURATED, Measure
from sentdist.report.evaluated import compare_evaluated


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An encoder against the untouched one on one task of held-out rows, for these very encoders and other rows.

    ours, theirs: scores × 100. saturated: measures that were passed over because both encoders reach their maximum.
    """

    task: str
    measure: str
    num_items: int
    ours: float
    theirs: float
    difference: Difference
    saturated: tuple[str, ...] = ()

    @property
    def outcome(self) -> Literal["better", "worse", "not shown to be better"]:
        """By the test at the 5 % level."""
        if not self.difference.is_significant:
            return "not shown to be better"
        return "better" if self.difference.difference > 0 else "worse"

    @property
    def line(self) -> str:
        """The verdict as a sentence for people."""
        found = self.difference
        interval = "" if found.low is None or found.high is None else f" (95 % interval {found.low:+.2f} to {found.high:+.2f})"
        can_show = self.outcome == "not shown to be better" and found.detectable is not None
        seen = f" A true difference of {found.detectable:.1f} points would be found in 4 of 5 such tests." if can_show else ""
        why = f" No test is possible: {found.reason}." if found.p is None and found.reason else ""
        full = f" ({' and '.join(self.saturated)} cannot tell them apart: both reach {SATURATED:g} or more.)" if self.saturated else ""
        return (
            f"{self.outcome.capitalize()} than the untouched encoder: {self.measure} {self.ours:.2f} "
            f"against {self.theirs:.2f} on {self.num_items:,} held-out items, {found.difference:+.2f}{interval}.{seen}{why}{full}"
        )


def verdict(ours: Scored, untouched: Scored, tasks: Mapping[str, Measure]) -> Verdict:
    """Compare an encoder with the untouched one by the first task that can tell them apart. tasks: with their measures, in order.

    Raises:
        DataError: as `compare_evaluated`.
    """
    defined = {name: measure for name, measure in tasks.items() if None not in (ours.scores[name], untouched.scores[name])} or tasks
    full = [name for name in defined if min(ours.scores[name] or 0.0, untouched.scores[name] or 0.0) >= SATURATED]
    name = next((name for name in defined if name not in full), next(iter(defined)))
    line = compare_evaluated(("trained", "untouched"), (ours, untouched), {name: tasks[name]}).lines[0]
    return Verdict(
        task=name, measure=tasks[name].title, num_items=line.num_items, ours=line.ours, theirs=line.theirs, difference=line.difference,
        saturated=tuple(tasks[one].title for one in full),
    )  # fmt: skip
