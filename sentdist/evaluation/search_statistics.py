"""Statistics of a search: importance of fields, expected best score by trials and cost, optimism of the chosen trial."""

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
LEAST_TRIALS = 16  # fewer are not enough: of 12 random trials over four fields the greatest share is 0.6 by luck
BEST_PART = 0.25  # the good trials are the best quarter; Optuna's tenth would be three of 32
RESAMPLED, SHUFFLED = 24, 60


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of the space: numbers from `low` to `high` (on a log scale if `is_log`), or one of the names `choices`."""

    name: str
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Importance:
    """The importance of one field.

    Args:
        share: of distinguishing the best quarter of trials from the others (PED-ANOVA); all fields sum to 1.
        low: range to `high` of the share in 8 of 10 cases if a third of the trials is left out.
        by_luck: level that the greatest share passes in 1 of 20 searches with shuffled scores.
        everywhere: share of the variance over the whole space (fANOVA).
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
    """Return the importance of each field, most important first; None for fewer than LEAST_TRIALS trials, or if all scores are equal.

    PED-ANOVA (Watanabe et al. 2023, arXiv 2304.10255) and fANOVA (Hutter et al. 2014, ICML), both from Optuna. They assume trials spread
    over the whole space; adaptive suggestions sample bad regions less, so the shares know less about these.

    Args:
        trials: name of a field -> its number, or the name of its choice.

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
    """Optuna's importance evaluators over one set of trials."""

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
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # else it logs the new study
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
COSTS = 160  # at which the best so far is computed: more than a figure shows


@dataclass(frozen=True, kw_only=True, eq=False)
class BestByCost:
    """Best score so far (points) at each of C costs, over orders of the trials: `middle` is the median, `low` and `high` those of BAND.

    -inf if at that quantile there is no score yet.
    """

    costs: Floats
    low: Floats
    middle: Floats
    high: Floats


def expected_best(scores: Sequence[float] | Floats) -> Floats:
    """Return (N,) the expected best of 1 … N of these N trials, drawn without replacement.

    Unbiased for independent trials (Tang et al. 2020, ACL, eq. 4: a U-statistic); drawing with replacement (Dodge et al. 2019, arXiv
    1909.03004, eq. 8) is too low.

    Raises:
        DataError: no score, or one that is not finite.
    """
    ordered = _ordered(scores)
    return np.array([np.diff(_below(len(ordered), num), prepend=0.0) @ ordered for num in range(1, len(ordered) + 1)])


def best_quantiles(scores: Sequence[float] | Floats, quantiles: Sequence[float] = BAND, *, are_all: bool = False) -> Floats:
    """Return (Q, N) quantiles of the best of 1 … N trials, drawn with replacement from these N.

    With replacement, as a bootstrap, so that the band has a width even at N trials (Dodge et al. 2019, section 3.2).

    Args:
        are_all: these are all possible trials; each is then drawn once.

    Raises:
        DataError: no score, or one that is not finite.
    """
    ordered = _ordered(scores)
    reached = [_at_most(len(ordered), num, is_all=are_all)[1:] for num in range(1, len(ordered) + 1)]
    return np.array([[ordered[np.searchsorted(one, level - 1e-12)] for one in reached] for level in quantiles])


def chance_of_more(
    ours: Sequence[float] | Floats, theirs: Sequence[float] | Floats, num: int, *, are_all: tuple[bool, bool] = (False, False)
) -> float:
    """Return the probability that the best of `num` of our trials beats that of theirs, drawn with replacement; ties count half.

    Args:
        are_all: whether ours, and theirs, are all possible trials; each is then drawn once.
    """
    one, other = _ordered(ours), _ordered(theirs)
    mass = np.diff(_at_most(len(one), num, is_all=are_all[0]))
    reached = _at_most(len(other), num, is_all=are_all[1])
    below, at_most = (reached[np.searchsorted(other, one, side=side)] for side in ("left", "right"))
    return float(mass @ (below + at_most) / 2)


def best_by_cost(scores: Sequence[float] | Floats, costs: Sequence[float] | Floats) -> BestByCost:
    """Return the best score so far by accumulated cost, over 1,000 random orders of the trials (the same at each call).

    Args:
        scores: (N,) points; -inf for trials without a score.
        costs: (N,) at least 0.

    Raises:
        DataError: no trial, a cost below 0, or unequal numbers of scores and costs.
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
