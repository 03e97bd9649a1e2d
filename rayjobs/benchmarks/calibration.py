"""How often tests of significance err where no system is better than another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t, ttest_1samp, ttest_ind

from rayjobs.benchmarks.null_models import NullModel
from sentdist.evaluation.significance import Difference, against, may_be_best
from sentdist.evaluation.variation import Column, Entry

LEVEL = 0.05
TestRule = Callable[[NDArray[np.float64], NullModel], NDArray[np.float64]]  # (R, K + 1, N, I) tables to (R, K) p against the baseline


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Shares of tables. any_row: some row is distinguished from its equal, the baseline; one_row: mean share of such rows; last_row:
    the last is."""

    one_row: float
    any_row: float
    last_row: float


def by_seeds_alone(values_RKNI: NDArray[np.float64], model: NullModel) -> NDArray[np.float64]:
    """Welch's test over seeds, the test items taken for given; Student's against a fixed baseline."""
    scores_RKN = values_RKNI.mean(axis=3)
    rows, baseline = scores_RKN[:, 1:], scores_RKN[:, :1]
    if model.is_fixed:
        return np.asarray(ttest_1samp(rows - baseline, 0.0, axis=2).pvalue)
    return np.asarray(ttest_ind(rows, np.broadcast_to(baseline, rows.shape), axis=2, equal_var=False).pvalue)


def by_items_alone(values_RKNI: NDArray[np.float64], model: NullModel) -> NDArray[np.float64]:
    """A paired test over items, taken for independent, the trainings taken for given."""
    means_RKI = values_RKNI.mean(axis=2)
    return np.asarray(ttest_1samp(means_RKI[:, 1:] - means_RKI[:, :1], 0.0, axis=2).pvalue)


def errors(rule: TestRule, model: NullModel, *, count: int, seed: int = 0, level: float = LEVEL) -> Errors:
    """How often a rule errs in `count` tables of a model."""
    found = np.concatenate([rule(tables, model) < level for tables in model.tables(count, np.random.default_rng(seed))])
    return Errors(one_row=float(found.mean()), any_row=float(found.any(axis=1).mean()), last_row=float(found[:, -1].mean()))


def monte_carlo_error(share: float, count: int, *, level: float = 0.95) -> float:
    """Half the width of the interval of a share that was counted in `count` tables."""
    return float(t.ppf((1 + level) / 2, count - 1) * np.sqrt(share * (1 - share) / count))


def by_seeds_and_items(values_RKNI: NDArray[np.float64], model: NullModel) -> NDArray[np.float64]:
    """The project's own test, p of each row alone."""
    return np.array([[1.0 if found.p is None else found.p for found in _differences(values, model)] for values in values_RKNI])


def over_table(values_RKNI: NDArray[np.float64], model: NullModel) -> NDArray[np.float64]:
    """The project's own test, p over the whole table."""
    return np.array([[1.0 if found.table_p is None else found.table_p for found in _differences(values, model)] for values in values_RKNI])


def not_best(model: NullModel, *, count: int, seed: int = 0) -> float:
    """The share of tables of equals in which some row is said not to be the best."""
    tables = model.tables(count, np.random.default_rng(seed))
    return float(np.mean([len(may_be_best(column_of(table, model))[1]) <= model.num_rows for some in tables for table in some]))


def column_of(values_KNI: NDArray[np.float64], model: NullModel) -> Column:
    """A table of one column, as reports fit it."""
    scores_KN = values_KNI.mean(axis=2)
    groups, num_items = model.groups, model.num_items
    starts = np.flatnonzero(np.r_[True, np.diff(groups) > 0])
    added_KNG = np.add.reduceat((values_KNI - scores_KN[..., None]) / num_items, starts, axis=2)
    seeds = tuple(range(model.num_seeds))
    entries = [
        Entry(label=str(row), scores=scores, seeds=seeds, contributions=added)
        for row, (scores, added) in enumerate(zip(scores_KN, added_KNG, strict=True))
    ]
    if model.is_fixed:
        entries[0] = Entry(label="0", scores=scores_KN[0, :1], seeds=(), contributions=added_KNG[0, :1])
    return Column(entries, np.diff(np.r_[starts, num_items]) / num_items)


def _differences(values_KNI: NDArray[np.float64], model: NullModel) -> list[Difference]:
    return against([column_of(values_KNI, model)], [[(str(row), "0") for row in range(1, len(values_KNI))]])[0]
