"""How much each field of a search's space has to do with the scores, with what luck alone would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from sentdist.errors import DataError
from sentdist.evaluation.significance import summarize

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


Floats = NDArray[np.float64]
LEAST_TRIALS = 16  # fewer say nothing of several fields: of 12 random trials over four fields the greatest share is 0.6 by luck
BEST_PART = 0.25  # the good trials are the best quarter; Optuna's tenth would be three of 32
RESAMPLED, SHUFFLED = 24, 60


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of the space: numbers from `low` to `high` (by their logarithm where `is_log`), or one of `choices`, by their names."""

    name: str
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Importance:
    """The share of one field, all of them 1 in sum.

    low, high: where it lies in 8 of 10 cases if a third of the trials is left out. by_luck: what the greatest of all fields passes in 1 of
    20 searches whose scores have nothing to do with the fields (scores shuffled). everywhere: its share of the variance over the
    whole space (fANOVA), where `share` asks what distinguishes the best quarter of trials from the others (PED-ANOVA).
    """

    field: str
    share: float
    low: float
    high: float
    by_luck: float
    everywhere: float

    @property
    def is_significant(self) -> bool:
        return self.share > self.by_luck


def importances(fields: Sequence[Field], trials: Sequence[Mapping[str, float | str]], scores: Sequence[float]) -> list[Importance] | None:
    """The importance of each field, most important first; None for fewer than LEAST_TRIALS trials, or where all scores are one.

    PED-ANOVA (Watanabe et al. 2023, arXiv 2304.10255) and fANOVA (Hutter et al. 2014, ICML), both as Optuna has them. They take the trials
    as spread over the space; suggestions that seek good places visit the others less, which these shares then show less of.

    trials: name of a field -> its number, or its choice's name.

    Raises:
        ImportError: optuna is not installed.
    """
    values = np.asarray(scores, dtype=np.float64)
    if len(values) < LEAST_TRIALS or np.ptp(values) == 0 or not fields:
        return None
    measure = _Measure(fields, trials)
    found = measure.of_best(values)
    if found.sum() <= 0:
        return None
    random = np.random.default_rng(0)
    parts = [random.permutation(len(values))[: -(-2 * len(values) // 3)] for _ in range(RESAMPLED)]
    again = [measure.of_best(values[rows], rows) for rows in parts]
    shares = np.array([one / one.sum() for one in again if one.sum() > 0])
    luck = float(np.quantile([measure.of_best(random.permutation(values)).max() for _ in range(SHUFFLED)], 0.95))
    low, high = np.quantile(shares, (0.1, 0.9), axis=0)
    total, everywhere = float(found.sum()), measure.everywhere(values)
    by_field = [
        Importance(
            field=field.name, share=float(found[place]) / total, low=float(low[place]), high=float(high[place]), by_luck=luck / total,
            everywhere=float(everywhere[place]),
        )
        for place, field in enumerate(fields)
    ]  # fmt: skip
    return sorted(by_field, key=lambda one: -one.share)


class _Measure:
    """Optuna's evaluators over one set of trials."""

    def __init__(self, fields: Sequence[Field], trials: Sequence[Mapping[str, float | str]]) -> None:
        self._names = [field.name for field in fields]
        self._distributions = {field.name: _distribution(field) for field in fields}
        self._trials = [{name: trial[name] for name in self._names} for trial in trials]

    def of_best(self, values: Floats, rows: Sequence[int] | NDArray[np.intp] | None = None) -> Floats:
        from optuna.importance import PedAnovaImportanceEvaluator

        evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_PART)
        return self._evaluated(evaluator, values, range(len(values)) if rows is None else rows)

    def everywhere(self, values: Floats) -> Floats:
        from optuna.importance import FanovaImportanceEvaluator

        found = self._evaluated(FanovaImportanceEvaluator(n_trees=32, seed=0), values, range(len(values)))
        return found / found.sum() if found.sum() > 0 else found

    def _evaluated(self, evaluator: object, values: Floats, rows: Sequence[int] | NDArray[np.intp] | range) -> Floats:
        import optuna

        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # it would tell that a study was made
        try:
            study = optuna.create_study(direction="maximize")
            study.add_trials(
                [
                    optuna.create_trial(params=self._trials[row], distributions=self._distributions, value=float(value))
                    for row, value in zip(rows, values, strict=True)
                ]
            )
            found = evaluator.evaluate(study, params=self._names)  # type: ignore[attr-defined]
        finally:
            optuna.logging.set_verbosity(before)
        return np.array([max(0.0, float(found[name])) for name in self._names])


def _distribution(field: Field) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if field.choices:
        return CategoricalDistribution(field.choices)
    return FloatDistribution(field.low, field.high, log=field.is_log)


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
