"""How much each field of a search's space has to do with the scores, with what luck alone would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
