"""Statistics of a search: the optimism of its chosen trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentdist.evaluation.significance import summarize


@dataclass(frozen=True, kw_only=True)
class Optimism:
    """Dev score of a chosen trial, mean dev score of its settings with fresh seeds, and 95 % interval of their difference (None for one
    seed), in points."""

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
        """Whether the difference is significant over fresh seeds."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def optimism(chosen_by: float, fresh: Sequence[float]) -> Optimism:
    """Return the optimism of choosing the maximum (Cawley & Talbot 2010, JMLR 11, 2079).

    The score of the chosen trial is biased upwards by the luck of its seed; fresh seeds are not. Both share the luck of the dev sentences,
    which only a test set shows.

    Args:
        chosen_by: dev score of the chosen trial.
        fresh: dev scores of the same settings with other seeds.

    Raises:
        DataError: no fresh score, or one that is not finite.
    """
    found = summarize(fresh)
    low, high = (None if one is None else chosen_by - one for one in (found.high, found.low))
    return Optimism(chosen_by=chosen_by, fresh=found.mean, low=low, high=high, num_fresh=found.num_seeds)
