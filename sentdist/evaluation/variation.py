"""Estimate how the scores in one column of a table vary over training seeds and groups of test items, for all systems at once.

Model of the score of system k with seed s: mean + effect of the seed + effect of the training + effect of the items.

* **Seeds.** Rows that ran with the same seeds are paired by them: a seed's effect on all of them (same order, same start) cancels in a
  difference (two-way layout, seeds as blocks). The variance of trainings is that of the residuals. Three seeds estimate a variance badly,
  so each row's variance is shrunk towards the others' by as much as they agree (Smyth 2004, moderated t), with a weight limited by the
  number of rows minus 3.
* **Items.** Each item's contribution to the score (`evaluation/items.py`) is summed over its group: items that share a text, by
  their `group` column. The seeds × items part of the variance over groups is subtracted, since the spread over seeds includes it. This is
  the variance of the pigeonhole bootstrap (Owen 2007, Ann. Appl. Stat. 1, 386), which counts that part up to three times. In a mean
  over tasks, or over parts of one (folds, languages, forums), each is a stratum whose groups vary separately; strata that share texts are
  joined (`evaluation/items.py`). Degrees of freedom are combined by Satterthwaite's rule.
* **Few seeds.** Components with different degrees of freedom are combined by Cochran & Cox's rule (1950): the critical value is the mean of
  the components' own, weighted by their variances. Simulated false positives at 5 % are 2 to 6 %, where Satterthwaite's degrees give up to
  13 and 8 % with 2 and 3 seeds (infra/benchmarks/calibration.md).
* **One seed, or untouched checkpoints.** The interval is then over test items only: these encoders on other items.
* **An untouched checkpoint** is a constant over seeds. Compared with it, Student's test of three seeds errs in a quarter of cases if
  trainings have two modes; with few rows to estimate the spread, p is therefore at least that of the sign test: 2^(1 − seeds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma, psi, stdtrit
from scipy.stats import norm, t

from sentdist.errors import DataError

NORMAL_GRID = np.linspace(0.0, 8.0, 81)  # normal quantiles, between which critical values are interpolated
LEAST_VARIANCE = 1e-18  # points²: below, scores agree to their rounding


def moderated(variances: Floats, degrees: Floats) -> tuple[Floats, Floats]:
    """Shrink variances towards their common value; return them with their new degrees of freedom (Smyth 2004, Stat. Appl. Genet. 3, 3).

    The weight of the common value, in degrees of freedom, follows from how much log variances differ beyond chance; it is at most
    (rows − 3) times that of a row, so up to three rows are not changed.
    """
    usable = variances > LEAST_VARIANCE
    rows = int(usable.sum())
    if rows < 4:
        return variances, degrees
    own, given = variances[usable], degrees[usable]
    logs = np.log(own) - psi(given / 2) + np.log(given / 2)
    beyond = float(logs.var(ddof=1) - np.mean(polygamma(1, given / 2)))
    most = (rows - 3) * float(np.median(given))
    if beyond > 0 and (prior := 2 * _inverse_trigamma(beyond)) < most:
        common = float(np.exp(logs.mean() + psi(prior / 2) - np.log(prior / 2)))
    else:
        prior, common = most, float(np.average(own, weights=given))
    drawn = (prior * common + degrees * variances) / (prior + degrees)
    return np.where(usable, drawn, variances), np.where(usable, degrees + prior, degrees)


def _inverse_trigamma(value: float) -> float:
    """Newton's method on 1 / trigamma, which is convex (Smyth 2004, appendix)."""
    found = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, found))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, found))
        found += step
        if abs(step) < 1e-8 * found:
            break
    return found


def t_quantiles(degrees_P: Floats) -> Floats:
    """Return (P, Z) quantiles of Student's t that correspond to NORMAL_GRID."""
    return np.array([_t_curve(round(float(degrees), 3)) for degrees in degrees_P]).reshape(len(degrees_P), len(NORMAL_GRID))


@lru_cache(maxsize=4096)
def _t_curve(degrees: float) -> Floats:
    return np.asarray(t.isf(norm.sf(NORMAL_GRID), degrees))


About = Literal["seeds and items", "items", "seeds", "nothing"]
Floats = NDArray[np.float64]
ALPHA = 0.05
COPIES_WITHIN = 1e-9  # points; seeds that agree so far do not vary
DRAWS = 4000  # of a table's joint distribution: p = 0.05 is known to 0.007
MOST_DRAWN = 6_000_000  # differences: all pairs of a hundred rows have 1200 draws, and take 0.2 s a column
MOST_CORRELATED = 200  # differences of which correlations are looked at
LEAST_CHANCE = 0.01  # of correlations that is taken away: less is not seen in p
ROWS_FOR_SPREAD = 5  # against a constant: rows whose spread is as good as known


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """The scores of one system in one column, in points.

    Args:
        scores: (N,) in the order of `seeds`; an untouched checkpoint has one score and no seeds.
        contributions: (N, G) of each group of test items to each score, rows sum to 0; None if there are no items.
    """

    label: str
    scores: Floats
    seeds: tuple[int, ...]
    contributions: Floats | None = None

    @property
    def is_fixed(self) -> bool:
        return not self.seeds

    @property
    def is_copies(self) -> bool:
        """Whether all seeds have the same score, on every group of items."""
        if len(self.seeds) < 2 or np.ptp(self.scores) > COPIES_WITHIN:
            return False
        return self.contributions is None or float(np.ptp(self.contributions, axis=0).max()) < COPIES_WITHIN


@dataclass(frozen=True, kw_only=True)
class Interval:
    """95 % interval of the mean of one system; not clipped to the range of the measure."""

    low: float
    high: float
    about: About


@dataclass(frozen=True, kw_only=True, eq=False)
class PairwiseDifferences:
    """P differences of rows j and k, with standard errors and equivalent normal quantiles."""

    differences: Floats
    errors: Floats  # 0 where nothing is known
    normal: Floats  # |z|, ≥ 0
    about: tuple[About, ...]
    critical: Floats  # (P, Z) multiples of the standard error that belong to NORMAL_GRID
    least_p: Floats  # what p cannot fall below

    def margin(self, place: int, quantile: float) -> float:
        """Return half the width of a difference's interval at a normal quantile."""
        return float(self.errors[place] * np.interp(quantile, NORMAL_GRID, self.critical[place]))


class Column:
    """The fitted variances of one column of a table."""

    def __init__(
        self, entries: Sequence[Entry], weights: Sequence[float] | Floats = (), tasks: Sequence[int] | NDArray[np.intp] = ()
    ) -> None:
        """Fit a column.

        Args:
            weights: (G,) share of each group of items in the score, 1 in sum.
            tasks: (G,) task or part of each group in a mean over tasks or parts, 0, 1, … ascending; () for one task.

        Raises:
            DataError: scores that are not finite, or contributions of another shape.
        """
        _check(entries, len(weights))
        self.entries = tuple(entries)
        self.means = np.array([entry.scores.mean() for entry in entries])
        self.has_seeds = np.array([len(entry.seeds) > 1 for entry in entries])
        self.is_fixed = np.array([entry.is_fixed for entry in entries])
        self.is_copies = np.array([entry.is_copies for entry in entries])
        weights_G = np.asarray(weights, dtype=np.float64)
        self._tasks = _Tasks(weights_G, np.asarray(tasks if len(tasks) else np.zeros(len(weights_G)), dtype=np.intp))
        self.has_items = np.array([entry.contributions is not None and self._tasks.are_known for entry in entries])
        self.is_one_group = not self._tasks.are_known and any(entry.contributions is not None for entry in entries)
        self.is_testable = ~self.is_copies & (self.has_seeds | self.has_items | (self.is_fixed & self.has_seeds.any()))
        self._fit_seeds()
        self._fit_items()

    def place(self, label: str) -> int:
        """Return the index of a system among the entries."""
        return next(place for place, entry in enumerate(self.entries) if entry.label == label)

    def _fit_seeds(self) -> None:
        """own: variance of each mean from its trainings, with degrees of freedom; common: variance of the seeds' effect on paired rows."""
        num = len(self.entries)
        self._own, self._own_df, self._spread_rows = np.zeros(num), np.ones(num), 0
        self._is_paired, self._common, self._common_df = np.zeros(num, dtype=bool), 0.0, 1.0
        rows = np.flatnonzero(self.has_seeds)
        if not len(rows):
            return
        self._is_paired = self._most_common_seeds(rows)
        residuals = {row: self.entries[row].scores - self.means[row] for row in rows}
        variances = np.array([float(np.sum(residuals[row] ** 2)) for row in rows]) / (self._counts(rows) - 1)
        paired = np.flatnonzero(self._is_paired)
        if len(paired) > 1:
            blocks = np.mean([residuals[row] for row in paired], axis=0)
            count, seeds = len(paired), len(blocks)
            own = {row: float(np.sum((residuals[row] - blocks) ** 2)) * count / (count - 1) / (seeds - 1) for row in paired}
            variances = np.array([own.get(row, variance) for row, variance in zip(rows, variances, strict=True)])
            self._common = max(0.0, float(np.sum(blocks**2)) / (seeds - 1) - float(np.mean(list(own.values()))) / count) / seeds
            self._common_df = seeds - 1.0
        drawn, degrees = moderated(variances, self._counts(rows) - 1.0)
        self._own[rows], self._own_df[rows], self._spread_rows = drawn / self._counts(rows), degrees, len(rows)

    def _most_common_seeds(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which rows are paired: those that ran with the seeds that most of them have."""
        sets = [self.entries[row].seeds for row in rows]
        most = max(set(sets), key=lambda seeds: (sets.count(seeds), seeds))
        return np.array([entry.seeds == most and len(most) > 1 for entry in self.entries])

    def _counts(self, rows: NDArray[np.intp]) -> Floats:
        return np.array([len(self.entries[row].scores) for row in rows], dtype=np.float64)

    def _fit_items(self) -> None:
        """(K, K) covariance of the rows' means over items: `given` for these encoders, summed over tasks; `beyond`: less seeds × items."""
        num = len(self.entries)
        self._of_tasks = np.zeros((self._tasks.num, num, num))
        self._given, self._beyond = np.zeros((num, num)), np.zeros((num, num))
        rows = np.flatnonzero(self.has_items)
        if not len(rows):
            return
        found = [np.asarray(self.entries[row].contributions) * self._tasks.spread for row in rows]
        means_KG = np.stack([one.mean(axis=0) for one in found])
        of_tasks = np.stack([means_KG[:, own] @ means_KG[:, own].T for own in self._tasks.slices])
        given = of_tasks.sum(axis=0)
        interaction = np.zeros_like(given)
        is_paired = self._is_paired[rows]
        if is_paired.any():
            left_KNG = np.stack([one - one.mean(axis=0) for one, paired in zip(found, is_paired, strict=True) if paired])
            seeds = left_KNG.shape[1]
            of_paired = sum(left_KNG[:, seed] @ left_KNG[:, seed].T for seed in range(seeds)) / (seeds * (seeds - 1))
            interaction[np.ix_(is_paired, is_paired)] = of_paired
        for place, one in enumerate(found):
            if not is_paired[place] and len(one) > 1:
                interaction[place, place] = float(np.sum((one - one.mean(axis=0)) ** 2)) / (len(one) * (len(one) - 1))
        self._given[np.ix_(rows, rows)], self._beyond[np.ix_(rows, rows)] = given, given - interaction
        self._of_tasks[:, rows[:, None], rows] = of_tasks

    def pairs(self, rows: NDArray[np.intp], others: NDArray[np.intp]) -> PairwiseDifferences:
        """Return the P differences of rows minus others."""
        with_seeds = self._speaks_of_seeds(rows) & self._speaks_of_seeds(others) & ~(self.is_fixed[rows] & self.is_fixed[others])
        with_items = self.has_items[rows] & self.has_items[others]
        copies = self.is_copies[rows] | self.is_copies[others]
        items = np.where(with_seeds, *(_of_difference(matrix, rows, others) for matrix in (self._beyond, self._given)))
        of_tasks_HP = np.stack([_of_difference(one, rows, others) for one in self._of_tasks])
        unpaired = self._is_paired[rows] != self._is_paired[others]
        components = [
            (np.where(with_seeds, self._own[rows], 0.0), self._own_df[rows]),
            (np.where(with_seeds, self._own[others], 0.0), self._own_df[others]),
            (np.where(with_seeds & unpaired, self._common, 0.0), np.full(len(rows), self._common_df)),
            (np.where(with_items, np.maximum(items, 0.0), 0.0), self._tasks.joint_degrees(of_tasks_HP)),
        ]
        variance = np.sum([one for one, _ in components], axis=0)
        known = (variance > 0) & ~copies
        critical = sum(one[:, None] * t_quantiles(degrees) for one, degrees in components) / np.where(variance > 0, variance, 1.0)[:, None]
        errors = np.where(known, np.sqrt(variance), 0.0)
        differences = self.means[rows] - self.means[others]
        distance = np.abs(differences) / np.where(known, errors, 1.0)
        names: list[About] = [
            "nothing" if not k else "seeds and items" if s and i else "seeds" if s else "items"
            for k, s, i in zip(known, with_seeds, with_items, strict=True)
        ]
        normal = np.array([np.interp(one, curve, NORMAL_GRID) for one, curve in zip(distance, critical, strict=True)])
        return PairwiseDifferences(
            differences=differences, errors=errors, normal=np.where(known, normal, 0.0), about=tuple(names), critical=critical,
            least_p=np.where(with_seeds, self._least_p(rows, others), 0.0),
        )  # fmt: skip

    def _speaks_of_seeds(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        return self.has_seeds[rows] | self.is_fixed[rows]

    def _least_p(self, rows: NDArray[np.intp], others: NDArray[np.intp]) -> Floats:
        """The p value of the sign test against a constant, where too few rows estimate the spread of trainings; else 0."""
        floors = np.zeros(len(rows))
        if self._spread_rows >= ROWS_FOR_SPREAD:
            return floors
        for place, (row, other) in enumerate(zip(rows, others, strict=True)):
            if self.is_fixed[row] != self.is_fixed[other]:
                trained = other if self.is_fixed[row] else row
                floors[place] = 2.0 ** (1 - len(self.entries[trained].scores))
        return floors

    @cached_property
    def draws(self) -> Floats:
        """(R, K) joint sample of the rows' means under the null hypothesis, for all tests of the column."""
        covariance = np.diag(self._own) + np.outer(self._is_paired, self._is_paired) * self._common + self._joint_items
        values, vectors = np.linalg.eigh(covariance)
        standard = np.random.default_rng(0).standard_normal((DRAWS, len(values)))
        return np.asarray(standard @ (vectors * np.sqrt(np.maximum(values, 0.0))).T)

    @property
    def _joint_items(self) -> Floats:
        """(K, K) covariance of the rows over items."""
        return np.where(np.outer(self.has_seeds, self.has_seeds), self._beyond, self._given)

    def _by_chance(self, rows: NDArray[np.intp], others: NDArray[np.intp]) -> float:
        """The share (0 to 1) of the correlations of these differences over items that a small number of groups causes by chance.

        Schäfer & Strimmer 2005 (Stat. Appl. Genet. Mol. Biol. 4, 32), with the variance 1 / d that a correlation has by chance. With two
        groups of items all differences look perfectly correlated.
        """
        some = np.unique(np.linspace(0, len(rows) - 1, MOST_CORRELATED).astype(np.intp))
        moved = self._joint_items[rows[some]] - self._joint_items[others[some]]
        covariance = moved[:, rows[some]] - moved[:, others[some]]
        variances = np.maximum(np.diag(covariance), 0.0)
        scale = np.outer(variances, variances)
        is_known = (scale > 0) & ~np.eye(len(some), dtype=bool)
        squares = covariance[is_known] ** 2 / scale[is_known]
        if not squares.any():
            return 0.0
        degrees = float(np.median(self._tasks.joint_degrees(np.stack([_of_difference(one, rows, others) for one in self._of_tasks]))))
        return min(1.0, 1.0 / (degrees * float(np.mean(np.minimum(squares, 1.0)))))

    def greatest(self, pairs: PairwiseDifferences, rows: NDArray[np.intp], others: NDArray[np.intp]) -> Floats:
        """Return (R,) samples of the greatest |z| of these differences under the null hypothesis; 0 if none is tested."""
        known = pairs.errors > 0
        if not known.any():
            return np.zeros(DRAWS)
        draws = self.draws[: max(1000, MOST_DRAWN // int(known.sum()))].astype(np.float32)
        moved = draws[:, rows[known]] - draws[:, others[known]]
        moved /= np.sqrt(np.vecdot(moved.T, moved.T) / len(moved))  # by the sample's deviation, so that a single difference keeps its p
        if moved.shape[1] > 1 and (chance := self._by_chance(rows[known], others[known])) > LEAST_CHANCE:
            apart = np.random.Generator(np.random.SFC64(1)).standard_normal(moved.shape, dtype=np.float32)
            apart *= np.float32(np.sqrt(chance))
            moved *= np.float32(np.sqrt(1 - chance))
            moved += apart
            moved /= np.sqrt(np.vecdot(moved.T, moved.T) / len(moved))
        return np.maximum(moved.max(axis=1), -moved.min(axis=1)).astype(np.float64)

    def interval(self, label: str) -> Interval | None:
        """Return the 95 % interval of a system's mean; None if nothing varies or all its seeds score alike."""
        row = self.place(label)
        seeds, items = bool(self.has_seeds[row]), bool(self.has_items[row])
        if self.is_copies[row] or not (seeds or items):
            return None
        of_items = max(0.0, float((self._beyond if seeds else self._given)[row, row]))
        components = [(of_items, float(self._tasks.joint_degrees(self._of_tasks[:, row, row])))]
        if seeds:
            components += [(self._own[row], self._own_df[row]), (self._common if self._is_paired[row] else 0.0, self._common_df)]
        variance = sum(one for one, _ in components)
        if variance <= 0:
            return None
        multiple = sum(one * -float(stdtrit(degrees, ALPHA / 2)) for one, degrees in components) / variance
        margin = multiple * float(np.sqrt(variance))
        about: About = "seeds and items" if seeds and items else "seeds" if seeds else "items"
        return Interval(low=float(self.means[row]) - margin, high=float(self.means[row]) + margin, about=about)


class _Tasks:
    """Groups of items of a column's tasks, with degrees of freedom of each task."""

    def __init__(self, weights_G: Floats, tasks_G: NDArray[np.intp]) -> None:
        counts = np.bincount(tasks_G, minlength=1)
        ends = np.cumsum(counts)
        self.num = len(counts)
        self.are_known = bool((counts > 1).all())  # the variance over one group is unknown, as is that of a mean with it
        self.slices = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
        self.spread = np.sqrt(counts / np.maximum(counts - 1.0, 1.0))[tasks_G]  # (G,) what makes a sum of squares a variance
        self.degrees = np.array([_degrees(weights_G[own]) for own in self.slices])  # (H,)

    def joint_degrees(self, variances: Floats) -> Floats:
        """(…) degrees of freedom of a sum of the tasks' variances (H, …): Satterthwaite 1946, Biometrics Bulletin 2, 110."""
        known = np.maximum(variances, 0.0)
        degrees = self.degrees.reshape(-1, *[1] * (variances.ndim - 1))
        squares = np.sum(known**2 / degrees, axis=0)
        return np.asarray(np.where(squares > 0, known.sum(axis=0) ** 2 / np.where(squares > 0, squares, 1.0), self.degrees.min()))


def _degrees(weights_G: Floats) -> float:
    """Degrees of freedom of groups of these weights: their effective number (Kish) less one, at least 1."""
    total = float(np.sum(weights_G**2))
    return max(1.0, float(np.sum(weights_G)) ** 2 / total - 1.0) if total > 0 else 1.0


def _of_difference(matrix: Floats, rows: NDArray[np.intp], others: NDArray[np.intp]) -> Floats:
    return np.asarray(matrix[rows, rows] + matrix[others, others] - 2 * matrix[rows, others])


def _check(entries: Sequence[Entry], num_groups: int) -> None:
    for entry in entries:
        num_runs = max(1, len(entry.seeds))
        if entry.scores.shape != (num_runs,) or not np.isfinite(entry.scores).all():
            raise DataError(
                where=f"scores of {entry.label!r}", found=f"{entry.scores.tolist()} for {len(entry.seeds)} seeds",
                expected="a finite score a seed", remedy="Leave out runs that have no score, and say so.",
            )  # fmt: skip
        if entry.contributions is not None and entry.contributions.shape != (num_runs, num_groups):
            raise DataError(
                where=f"items of {entry.label!r}", found=f"contributions of shape {entry.contributions.shape}",
                expected=f"{num_runs} runs, {num_groups} groups of one test set", remedy="Compare encoders on one version of one task.",
            )  # fmt: skip
