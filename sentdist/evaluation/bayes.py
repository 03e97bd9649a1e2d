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
from scipy.stats import beta, norm, t

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
class Hierarchy:
    """Tasks drawn around a common mean. mean, spread: posterior means of that and of the tasks' standard deviation, in points.

    tasks: of each task's true difference, drawn towards the others; mean_of_tasks: of the common mean; next_task: of another such task.
    """

    mean: float
    spread: float
    tasks: tuple[Practical, ...]
    mean_of_tasks: Practical
    next_task: Practical


@dataclass(frozen=True, kw_only=True)
class Outperforming:
    """P(A > B): the share of pairs of runs in which the first scores higher, ties half, with its 95 % interval over pairs."""

    probability: float
    low: float
    high: float
    pairs: int

    @property
    def is_meaningful(self) -> bool:
        """Bouthillier et al. 2021 (arXiv 2103.03098), section 5: told from a coin's toss, and maybe above what is worth speaking of."""
        return self.low > 0.5 and self.high > MEANINGFUL


def practical(difference: float, error: float, *, rope: float, degrees: float = np.inf) -> Practical:
    """Of one difference with its standard error, from a flat prior: Student's posterior, as the correlated t test has it (Corani & Benavoli
    2015), where `error` has the correlation of runs in it already."""
    if error <= 0 or rope < 0:
        raise _unusable(f"a standard error of {error} and a rope of {rope}", "an error above 0 and a rope not below it")
    at = t.cdf(np.array([-rope, rope]), degrees, difference, error) if np.isfinite(degrees) else norm.cdf([-rope, rope], difference, error)
    return _split(at)


def hierarchy(differences: ArrayLike, errors: ArrayLike, *, rope: float) -> Hierarchy:
    """Of K tasks' differences in points with their standard errors; flat priors of the common mean and of the tasks' spread.

    Raises:
        DataError: fewer than three tasks, or an error that is not above 0.
    """
    d, s = np.asarray(differences, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if d.ndim != 1 or d.shape != s.shape or len(d) < LEAST_TASKS or not (s > 0).all() or rope < 0:
        raise _unusable(f"{d.tolist()} with errors {s.tolist()}", f"{LEAST_TASKS} tasks or more, each with an error above 0")
    spreads = WIDEST * float(np.std(d) + s.max()) * (np.arange(GRID) + 0.5) ** 2 / GRID**2  # finer near 0
    widths = np.gradient(spreads)
    variances = s**2 + spreads[:, None] ** 2  # (grid, K)
    of_mean = 1.0 / np.sum(1.0 / variances, axis=1)
    means = of_mean * np.sum(d / variances, axis=1)
    logs = 0.5 * np.log(of_mean) - 0.5 * np.sum(np.log(variances) + (d - means[:, None]) ** 2 / variances, axis=1)
    weights = np.exp(logs - logs.max()) * widths
    weights /= weights.sum()
    drawn = spreads[:, None] ** 2 / variances  # share of a task's own difference that stays
    centres = drawn * d + (1 - drawn) * means[:, None]
    deviations = np.sqrt(drawn * s**2 + (1 - drawn) ** 2 * of_mean[:, None])
    return Hierarchy(
        mean=float(weights @ means),
        spread=float(weights @ spreads),
        tasks=tuple(_mixture(weights, centres[:, place], deviations[:, place], rope) for place in range(len(d))),
        mean_of_tasks=_mixture(weights, means, np.sqrt(of_mean), rope),
        next_task=_mixture(weights, means, np.sqrt(of_mean + spreads**2), rope),
    )


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


def _mixture(weights: Floats, centres: Floats, deviations: Floats, rope: float) -> Practical:
    return _split(np.array([weights @ norm.cdf(edge, centres, deviations) for edge in (-rope, rope)]))


def _split(at: Floats) -> Practical:
    return Practical(worse=float(at[0]), same=float(at[1] - at[0]), better=float(1.0 - at[1]))


def _unusable(found: str, expected: str) -> DataError:
    return DataError(where="Bayesian comparison", found=found, expected=expected, remedy="Compare other encoders or tasks.")
