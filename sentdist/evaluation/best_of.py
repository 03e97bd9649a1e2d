"""What the best of so many trials of a search scores: in expectation, over orders of the trials, and against another method's best.

All of it takes trials as drawn alike, one as good as another beforehand. That holds for random suggestions and for the points of a grid in
any order; suggestions that learn from each other improve as they go, so for them this is about orders of the trials that were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from sentdist.errors import DataError

Floats = NDArray[np.float64]
BAND = (0.1, 0.9)  # eight searches of ten lie within
ORDERS = 1000  # of trials: a quantile of 0.1 is known to 0.01
COSTS = 160  # at which the best so far is given: more than a drawing shows


@dataclass(frozen=True, kw_only=True, eq=False)
class BestByCost:
    """Best score so far (points) at each of C costs, over orders of the trials: `middle` is the median, `low` and `high` those of BAND.

    -inf where so many orders have no score yet at that cost.
    """

    costs: Floats
    low: Floats
    middle: Floats
    high: Floats


def expected_best(scores: Sequence[float] | Floats) -> Floats:
    """(N,) the expected best of 1 … N trials out of these N, drawn without replacement.

    For trials that are drawn alike it is unbiased for the best of n trials of any such search (Tang et al. 2020, ACL, eq. 4: a
    U-statistic); drawing with replacement (Dodge et al. 2019, arXiv 1909.03004, eq. 8) is too low.

    Raises:
        DataError: no score, or one that is not finite.
    """
    ordered = _ordered(scores)
    return np.array([np.diff(_below(len(ordered), num), prepend=0.0) @ ordered for num in range(1, len(ordered) + 1)])


def best_quantiles(scores: Sequence[float] | Floats, quantiles: Sequence[float] = BAND, *, are_all: bool = False) -> Floats:
    """(Q, N) quantiles of the best of 1 … N trials that are drawn with replacement from these N.

    With replacement, as a bootstrap, so that the band stays open where a search of as many trials as were made could have had less luck
    (Dodge et al. 2019, section 3.2). It knows nothing of trials better than the best that was found. are_all: whether these trials are all
    that there can be; then each is drawn once.

    Raises:
        DataError: no score, or one that is not finite.
    """
    ordered = _ordered(scores)
    reached = [_at_most(len(ordered), num, is_all=are_all)[1:] for num in range(1, len(ordered) + 1)]
    return np.array([[ordered[np.searchsorted(one, level - 1e-12)] for one in reached] for level in quantiles])


def chance_of_more(
    ours: Sequence[float] | Floats, theirs: Sequence[float] | Floats, num: int, *, are_all: tuple[bool, bool] = (False, False)
) -> float:
    """The probability that the best of `num` of our trials is above the best of as many of theirs, each drawn with replacement; a tie
    counts half.

    are_all: whether these trials, ours and theirs, are all that there can be. Then each is drawn once, and `num` at least as great as
    their number finds the best of them.
    """
    one, other = _ordered(ours), _ordered(theirs)
    mass = np.diff(_at_most(len(one), num, is_all=are_all[0]))
    reached = _at_most(len(other), num, is_all=are_all[1])
    below, at_most = (reached[np.searchsorted(other, one, side=side)] for side in ("left", "right"))
    return float(mass @ (below + at_most) / 2)


def best_by_cost(scores: Sequence[float] | Floats, costs: Sequence[float] | Floats) -> BestByCost:
    """The best score so far as costs add up, over 1,000 random orders of the trials, the same ones at each call.

    scores: (N,) points, -inf for a trial that has none; costs: (N,) what each took, not below 0. The last cost is what all took together.

    Raises:
        DataError: no trial, a cost below 0, or not a score a cost.
    """
    scores_N, costs_N = np.asarray(scores, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    if (
        not len(scores_N)
        or scores_N.shape != costs_N.shape
        or not (np.isfinite(costs_N) & (costs_N >= 0)).all()
        or np.isnan(scores_N).any()
    ):
        raise _unusable(f"{scores_N.tolist()} at {costs_N.tolist()}", "at least one trial, with a cost of 0 or more each")
    random = np.random.default_rng(0)
    order_RN = np.argsort(random.random((ORDERS, len(scores_N))), axis=1)
    best_RN = np.maximum.accumulate(scores_N[order_RN], axis=1)
    paid_RN = np.cumsum(costs_N[order_RN], axis=1)
    grid_C = np.linspace(0.0, float(costs_N.sum()), COSTS)
    padded = np.concatenate([np.full((ORDERS, 1), -np.inf), best_RN], axis=1)
    slack = 1e-9 * float(costs_N.sum())  # sums in another order differ in their last digits
    done_RC = np.stack([np.searchsorted(paid, grid_C + slack, side="right") for paid in paid_RN])
    best_RC = np.take_along_axis(padded, done_RC, axis=1)
    low, middle, high = (np.sort(best_RC, axis=0)[min(int(level * ORDERS), ORDERS - 1)] for level in (BAND[0], 0.5, BAND[1]))
    return BestByCost(costs=grid_C, low=low, middle=middle, high=high)


def _at_most(size: int, num: int, *, is_all: bool) -> Floats:
    """(N + 1,) the probability that the best of `num` of N trials is none, or at most the i-th smallest."""
    if is_all:
        return np.concatenate([[0.0], _below(size, min(num, size))])
    return np.asarray((np.arange(size + 1) / size) ** num)


def _below(size: int, num: int) -> Floats:
    """(N,) the probability that the best of `num` of N trials, without replacement, is at most the i-th smallest: C(i, n) / C(N, n)."""
    place = np.arange(1, size + 1, dtype=np.float64)
    reached = place >= num
    logs = gammaln(place + 1) - gammaln(np.where(reached, place - num, 0.0) + 1) - gammaln(size + 1.0) + gammaln(size - num + 1.0)
    return np.where(reached, np.exp(logs), 0.0)


def _ordered(scores: Sequence[float] | Floats) -> Floats:
    values = np.sort(np.asarray(scores, dtype=np.float64))
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise _unusable(f"{values.tolist()}", "at least one score, all of them finite")
    return values


def _unusable(found: str, expected: str) -> DataError:
    return DataError(where="scores of trials", found=found, expected=expected, remedy="Leave out trials that have no score, and say so.")
