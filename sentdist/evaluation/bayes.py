"""A second opinion on two encoders: how probable it is that one is better by more than matters, here and on other tasks.

Benavoli, Corani, Demšar & Zaffalon 2017 (JMLR 18, 77) call differences within a region of practical equivalence (rope) none. Their
hierarchical model samples; here each task's difference comes with a known standard error, so that normal tasks around a common mean
(Gelman et al., Bayesian Data Analysis, 3rd ed., §5.4) can be integrated exactly, over a grid of the tasks' spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, norm

from sentdist.errors import DataError

Floats = NDArray[np.float64]
LEAST_TASKS = 3  # with fewer, a flat prior of the tasks' spread leaves no posterior
GRID = 4000
WIDEST = 20.0  # times what the differences and their errors spread: the end of the flat prior of the tasks' spread
MEANINGFUL = 0.75  # P(A > B) that Bouthillier et al. 2021 propose as worth speaking of


@dataclass(frozen=True, kw_only=True)
class Practical:
    """Probabilities that the first is worse by more than the rope, practically equal, and better; 1 in sum."""

    worse: float
    same: float
    better: float


@dataclass(frozen=True, kw_only=True)
class Outperforming:
    """P(A > B): the share of pairs of runs in which the first scores higher, ties half, with its 95 % interval over pairs."""

    probability: float
    low: float
    high: float
    pairs: int

    @property
    def is_meaningful(self) -> bool:
        """Bouthillier et al. 2021 (arXiv 2103.03098), section 5: distinguished from a coin's toss, and perhaps large enough to matter."""
        return self.low > 0.5 and self.high > MEANINGFUL


def practical(difference: float, error: float, *, rope: float) -> Practical:
    """The verdict on one difference with its standard error, from a flat prior: a normal posterior."""
    if error <= 0 or rope < 0:
        raise _unusable(f"a standard error of {error} and a rope of {rope}", "an error above 0 and a rope not below it")
    return _split(norm.cdf([-rope, rope], difference, error))


def another_task(differences: ArrayLike, errors: ArrayLike, *, rope: float) -> Practical:
    """The verdict on the true difference on another task like these K, from their differences in points with standard errors. Tasks are
    drawn around a common mean, with flat priors of that and of the tasks' spread.

    Raises:
        DataError: fewer than three tasks, or an error that is not above 0.
    """
    d, s = np.asarray(differences, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if d.ndim != 1 or d.shape != s.shape or len(d) < LEAST_TASKS or not (s > 0).all() or rope < 0:
        raise _unusable(f"{d.tolist()} with errors {s.tolist()}", f"{LEAST_TASKS} tasks or more, each with an error above 0")
    spreads = WIDEST * float(np.std(d) + s.max()) * (np.arange(GRID) + 0.5) ** 2 / GRID**2  # finer near 0
    variances = s**2 + spreads[:, None] ** 2  # (grid, K)
    of_mean = 1.0 / np.sum(1.0 / variances, axis=1)
    means = of_mean * np.sum(d / variances, axis=1)
    logs = 0.5 * np.log(of_mean) - 0.5 * np.sum(np.log(variances) + (d - means[:, None]) ** 2 / variances, axis=1)  # BDA, Eq. 5.21
    weights = np.exp(logs - logs.max()) * np.gradient(spreads)
    weights /= weights.sum()
    deviations = np.sqrt(of_mean + spreads**2)
    return _split(np.array([weights @ norm.cdf(edge, means, deviations) for edge in (-rope, rope)]))


def outperforming(ours: Sequence[float] | Floats, theirs: Sequence[float] | Floats) -> Outperforming:
    """P(A > B) from N paired scores (of seeds, or of tasks), with Clopper and Pearson's exact interval: a bootstrap of wins that all agree
    has no width, and three of three are no test.

    Raises:
        DataError: no pairs, or as many of one as not of the other.
    """
    one, other = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if one.ndim != 1 or one.shape != other.shape or not len(one):
        raise _unusable(f"{one.shape} and {other.shape} scores", "pairs")
    wins = np.where(one == other, 0.5, (one > other).astype(np.float64))
    won, pairs = float(wins.sum()), len(wins)
    low = float(beta.ppf(0.025, won, pairs - won + 1)) if won > 0 else 0.0
    high = float(beta.ppf(0.975, won + 1, pairs - won)) if won < pairs else 1.0
    return Outperforming(probability=won / pairs, low=low, high=high, pairs=pairs)


def _split(at: Floats) -> Practical:
    return Practical(worse=float(at[0]), same=float(at[1] - at[0]), better=float(1.0 - at[1]))


def _unusable(found: str, expected: str) -> DataError:
    return DataError(where="Bayesian comparison", found=found, expected=expected, remedy="Compare other encoders or tasks.")
