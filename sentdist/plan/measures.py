"""What a score is a number of: its measure, with a title, a unit and a range."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import dataclass

SATURATED = 99.5  # points of 100, from which on a measure cannot tell two encoders apart


@dataclass(frozen=True, kw_only=True)
class Measure:
    """name: of a result and of a column TASK:NAME. title: in a line of text. unit: below a table of such scores. lowest, highest: of all
    scores in that unit; no interval of a mean goes beyond. larger_is_better: False of one that does not say how good an
    encoder is: no two are compared by it, and none is chosen."""

    name: str
    title: str
    unit: str
    lowest: float = 0.0
    highest: float = 100.0
    larger_is_better: bool = True


def mean_of(measures: Collection[Measure]) -> Measure:
    """What the mean of one score of each is a number of."""
    if len(set(measures)) == 1:
        return next(iter(measures))
    lowest, highest = (statistics.fmean(ends) for ends in zip(*((one.lowest, one.highest) for one in measures), strict=True))
    *others, last = dict.fromkeys(one.title for one in measures)
    title = f"mean of {', '.join(others)} and {last}" if others else last
    return Measure(name="mean", title=title, unit="mean of several measures × 100", lowest=lowest, highest=highest)
