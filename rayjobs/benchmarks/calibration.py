"""How often tests of significance err where no system is better than another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t, ttest_1samp, ttest_ind

from rayjobs.benchmarks.null_worlds import NullWorld

LEVEL = 0.05
TestRule = Callable[[NDArray[np.float64], NullWorld], NDArray[np.float64]]  # (R, K + 1, N, I) tables to (R, K) p against the baseline


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Shares of tables. any_row: some row is told from its equal, the baseline; one_row: mean share of such rows."""

    one_row: float
    any_row: float


def by_seeds_alone(values_RKNI: NDArray[np.float64], world: NullWorld) -> NDArray[np.float64]:
    """Welch's test over seeds, the test items taken for given; Student's against a fixed baseline."""
    scores_RKN = values_RKNI.mean(axis=3)
    rows, baseline = scores_RKN[:, 1:], scores_RKN[:, :1]
    if world.is_fixed:
        return np.asarray(ttest_1samp(rows - baseline, 0.0, axis=2).pvalue)
    return np.asarray(ttest_ind(rows, np.broadcast_to(baseline, rows.shape), axis=2, equal_var=False).pvalue)


def by_items_alone(values_RKNI: NDArray[np.float64], world: NullWorld) -> NDArray[np.float64]:
    """A paired test over items, taken for independent, the trainings taken for given."""
    means_RKI = values_RKNI.mean(axis=2)
    return np.asarray(ttest_1samp(means_RKI[:, 1:] - means_RKI[:, :1], 0.0, axis=2).pvalue)


def errors(rule: TestRule, world: NullWorld, *, count: int, seed: int = 0, level: float = LEVEL) -> Errors:
    """How often a rule errs in `count` tables of a world."""
    told = np.concatenate([rule(tables, world) < level for tables in world.tables(count, np.random.default_rng(seed))])
    return Errors(one_row=float(told.mean()), any_row=float(told.any(axis=1).mean()))


def monte_carlo_error(share: float, count: int, *, level: float = 0.95) -> float:
    """Half the width of the interval of a share that was counted in `count` tables."""
    return float(t.ppf((1 + level) / 2, count - 1) * np.sqrt(share * (1 - share) / count))
