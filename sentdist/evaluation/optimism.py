"""By how much the dev score that made a trial the best of a search flatters it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentdist.evaluation.summary import summarize


@dataclass(frozen=True, kw_only=True)
class Optimism:
    """What dev said of a chosen trial, what its settings give on dev with fresh seeds, and their difference, in points.

    low, high: 95 % interval of the difference over fresh seeds (Student); None for one seed.
    """

    chosen_by: float
    fresh: float
    low: float | None
    high: float | None
    num_fresh: int

    @property
    def points(self) -> float:
        return self.chosen_by - self.fresh

    @property
    def is_significant(self) -> bool:
        """Whether the difference from 0 is more than fresh seeds explain."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def optimism(chosen_by: float, fresh: Sequence[float]) -> Optimism:
    """The optimism of a choice by the maximum (Cawley & Talbot 2010, JMLR 11, 2079): the score that chose, minus the mean of trainings that
    had no part in choosing.

    chosen_by: the dev score of the chosen trial; fresh: dev scores of the same settings with other seeds. The trial was chosen for being
    high, so its own score is biased upwards by the luck of its seed; scores of fresh seeds are not. All share the dev sentences: the luck
    of those is in both, and only a test set shows it.

    Raises:
        DataError: no fresh score, or one that is not finite.
    """
    found = summarize(fresh)
    low, high = (None if one is None else chosen_by - one for one in (found.high, found.low))
    return Optimism(chosen_by=chosen_by, fresh=found.mean, low=low, high=high, num_fresh=found.num_seeds)
