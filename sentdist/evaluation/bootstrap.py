"""How far a score moves when the test items are drawn again: the paired bootstrap over test items, exact and fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError

NUM_RESAMPLES = 10_000
ITEMS_PER_BLOCK = 40_000  # counts of one block, a dozen resamples of 3000 items: below, numpy's calls cost more than what they compute
RESAMPLES_PER_SEED = 250  # part of the result; a generator takes as long to make as 4000 numbers
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, kw_only=True, eq=False)
class Resampled:
    """A system's score (× 100) on a task's items as they are, and on R resamples of them.

    Two systems are paired when both were resampled with one seed over the same items: resample r then holds the same items for both.
    """

    score: float
    replicates: NDArray[np.float64]
    num_items: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class BootstrapDifference:
    """System minus baseline, × 100, with its percentile interval.

    `p` is two-sided and belongs to the interval: p < 0.05 exactly when the 95 % interval leaves out 0 (Efron & Tibshirani 1993, ch. 13,
    15.4). It cannot fall below 2 / (R + 1).
    """

    difference: float
    low: float
    high: float
    p: float
    num_items: int
    num_resamples: int


def resample_spearman(
    similarities_KS: ArrayLike,
    gold: ArrayLike,
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> list[Resampled]:
    """Spearman × 100 of K systems (or of one, given (S,)) with gold, on the same resamples of the S test pairs.

    Ranks are taken anew in each resample, just as drawing a list of pairs and calling spearmanr would; but nothing is sorted twice: with
    multinomial counts w, the mean rank of the copies of a value is (count below) + (w + 1) / 2. Raises DataError for values that are not
    finite and for systems or gold without spread, whose correlation does not exist.
    """
    gold_S = np.asarray(gold, dtype=np.float64)
    systems_KS = _checked(similarities_KS, len(gold_S), "similarities")
    _checked(gold_S, len(gold_S), "gold scores")
    if np.ptp(gold_S) == 0 or (np.ptp(systems_KS, axis=1) == 0).any():
        raise DataError(
            where="bootstrap of Spearman",
            found="values that are all equal",
            expected="values with a ranking",
            remedy="Leave this task out of the comparison: a correlation with a constant does not exist.",
        )
    order = np.argsort(gold_S, kind="stable")
    ranked_gold = _Ranking.of(gold_S[order])
    systems = [_Ranking.of(values_S[order]) for values_S in systems_KS]

    def correlations(counts_RS: NDArray[np.int32]) -> NDArray[np.float64]:
        return _weighted_spearman(counts_RS, ranked_gold, systems)

    return _resample(correlations, len(gold_S), num_resamples, seed)


def resample_mean(values_KS: ArrayLike, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> list[Resampled]:
    """The mean over items of K systems' values (accuracy or average precision of a query, × 100 already) on the same resamples."""
    systems_KS = np.atleast_2d(np.asarray(values_KS, dtype=np.float64))
    _checked(systems_KS, systems_KS.shape[-1], "values")

    def means(counts_RS: NDArray[np.int32]) -> NDArray[np.float64]:
        return (systems_KS @ counts_RS.T.astype(np.float64)) / systems_KS.shape[1]

    return _resample(means, systems_KS.shape[1], num_resamples, seed)


def average_resampled(parts: Sequence[Resampled]) -> Resampled:
    """The mean over seeds of one task, or over tasks of one system; tasks are resampled independently, so their seeds must differ."""
    return Resampled(
        score=float(np.mean([part.score for part in parts])),
        replicates=np.mean([part.replicates for part in parts], axis=0),
        num_items=parts[0].num_items if len({part.seed for part in parts}) == 1 else sum(part.num_items for part in parts),
        seed=parts[0].seed if len({part.seed for part in parts}) == 1 else -1,
    )


def percentile_interval(system: Resampled, *, level: float = 0.95) -> tuple[float, float]:
    """Where the score lies on other items: the percentile interval of its replicates (Efron & Tibshirani 1993, ch. 13)."""
    return _middle(system.replicates[np.isfinite(system.replicates)], level)


def paired_difference(system: Resampled, baseline: Resampled, *, level: float = 0.95) -> BootstrapDifference:
    """Compare two systems over the same resamples. Raises DataError if they were not drawn together."""
    if (system.num_items, system.seed, len(system.replicates)) != (baseline.num_items, baseline.seed, len(baseline.replicates)):
        raise DataError(
            where="paired bootstrap",
            found=f"{system.num_items} and {baseline.num_items} items, seeds {system.seed} and {baseline.seed}",
            expected="two systems resampled over the same items with one seed",
            remedy="Compare two encoders on one version of one task.",
        )
    moved_R = system.replicates - baseline.replicates
    moved_R = moved_R[np.isfinite(moved_R)]  # a resample of a tiny set can be constant: it has no correlation
    low, high = _middle(moved_R, level)
    fewer_side = min(int(np.sum(moved_R <= 0)), int(np.sum(moved_R >= 0)))
    return BootstrapDifference(
        difference=system.score - baseline.score,
        low=low,
        high=high,
        p=min(1.0, 2.0 * (1 + fewer_side) / (1 + len(moved_R))),
        num_items=system.num_items,
        num_resamples=len(moved_R),
    )


def _middle(replicates_R: NDArray[np.float64], level: float) -> tuple[float, float]:
    low, high = np.quantile(replicates_R, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ranking:
    """One variable's items in ascending order, and which of them share a value: few similarities do, most gold scores.

    Where more than a quarter do, all are taken in, the others as groups of one:
    to write among ranks takes longer than to write all of them.
    """

    order: NDArray[np.intp]  # (S,)
    tied: NDArray[np.intp]  # (T,) places in that order of items that share their value
    group: NDArray[np.intp]  # (T,) the group of equal values that each belongs to
    first: NDArray[np.intp]  # (G,) the first place of each such group
    last: NDArray[np.intp]  # (G,)

    @classmethod
    def of(cls, values_S: NDArray[np.float64]) -> _Ranking:
        order_S = np.argsort(values_S, kind="stable")
        first = np.flatnonzero(np.r_[True, np.diff(values_S[order_S]) > 0])
        last = np.r_[first[1:], len(order_S)] - 1
        shared = last > first
        if 4 * np.sum((last - first + 1)[shared]) <= len(order_S):
            first, last = first[shared], last[shared]
        sizes_G = last - first + 1
        group_T = np.repeat(np.arange(len(first)), sizes_G)
        tied_T = np.arange(len(group_T)) + np.repeat(first - (np.cumsum(sizes_G) - sizes_G), sizes_G)
        return cls(order=order_S, tied=tied_T, group=group_T, first=first, last=last)

    def ordered(self, values_RS: NDArray[Number]) -> NDArray[Number]:
        """(R, S) the items' values in this order."""
        return _columns(values_RS, self.order)

    def ranks(self, counts_RS: NDArray[np.int32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Twice the mean ranks around their mean, (R, S), and what ties take from three times their sum of squares, (R,).

        `counts_RS` stand in this order. The copies of a value with `below` items below it and `upto` items up to it have the ranks
        below + 1 to upto, of mean (below + upto + 1) / 2; the mean of all is (S + 1) / 2.
        """
        num_items = counts_RS.shape[1]
        upto_RS = np.cumsum(counts_RS, axis=1, dtype=np.int32)
        upto_RG = _columns(upto_RS, self.last)
        below_RG = _columns(upto_RS, self.first) - _columns(counts_RS, self.first)
        shared_RT = _columns(below_RG + upto_RG - num_items, self.group)
        alone_R = _sum_of_cubes(_columns(counts_RS, self.tied))
        ties_R = _sum_of_cubes(upto_RG - below_RG) - alone_R
        if len(self.tied) == num_items:
            return shared_RT.astype(np.float64), ties_R
        ranks_RS = upto_RS + upto_RS
        ranks_RS -= counts_RS
        ranks_RS -= num_items
        ranks_RS[:, self.tied] = shared_RT
        return ranks_RS.astype(np.float64), ties_R


def _weighted_spearman(counts_RS: NDArray[np.int32], gold: _Ranking, systems: list[_Ranking]) -> NDArray[np.float64]:
    """(K, R) Spearman × 100 with items in ascending order of gold.

    Spearman is Pearson's correlation of mean ranks. Twice the ranks are integers, and have around their mean the sum of squares
    (n³ − Σt³) / 3 with t the sizes of groups of ties, copies of one item included. All sums are of integers below 2⁵³, hence exact in
    whatever order; counts are summed as integers, four times faster.
    """
    untied_R = counts_RS.shape[1] ** 3 - _sum_of_cubes(counts_RS)
    ranks_RS, ties_R = gold.ranks(counts_RS)
    weighted_RS = counts_RS * ranks_RS
    gold_spread_R = untied_R - ties_R
    correlations = np.empty((len(systems), len(counts_RS)))
    for place, system in enumerate(systems):
        ranks_RS, ties_R = system.ranks(system.ordered(counts_RS))
        covariance_R = np.vecdot(ranks_RS, system.ordered(weighted_RS))
        product_R = gold_spread_R * (untied_R - ties_R)
        correlations[place] = 300.0 * covariance_R / np.sqrt(np.where(product_R > 0, product_R, np.nan))
    return correlations


def _columns(values_RS: NDArray[Number], places: NDArray[np.intp]) -> NDArray[Number]:
    """Some columns, (R, P); "clip", for "raise" would buffer all, and places have nothing to raise for."""
    return np.take(values_RS, places, axis=1, mode="clip")


def _sum_of_cubes(sizes_RG: NDArray[np.int32]) -> NDArray[np.float64]:
    exact_RG = sizes_RG.astype(np.float64)
    return np.vecdot(exact_RG * exact_RG, exact_RG)


def _resample(
    statistic: Callable[[NDArray[np.int32]], NDArray[np.float64]],
    num_items: int,
    num_resamples: int,
    seed: int,
) -> list[Resampled]:
    """In one thread: on arrays that fit a cache, two threads wait for Python's lock more than they compute (6.1 s against 3.6 s on two
    cores)."""
    sizes = [min(RESAMPLES_PER_SEED, num_resamples - start) for start in range(0, num_resamples, RESAMPLES_PER_SEED)]
    seeds = np.random.SeedSequence(seed).spawn(len(sizes))
    rows_per_block = max(1, ITEMS_PER_BLOCK // num_items)

    def part(size: int, of_part: np.random.SeedSequence) -> NDArray[np.float64]:
        generator = np.random.default_rng(of_part)
        blocks = (min(rows_per_block, size - start) for start in range(0, size, rows_per_block))
        return np.concatenate([statistic(_counts(rows, num_items, generator)) for rows in blocks], axis=1)

    scores_K = statistic(np.ones((1, num_items), dtype=np.int32))[:, 0]
    replicates_KR = np.concatenate([part(size, of_part) for size, of_part in zip(sizes, seeds, strict=True)], axis=1)
    return [
        Resampled(score=float(score), replicates=replicates_R, num_items=num_items, seed=seed)
        for score, replicates_R in zip(scores_K, replicates_KR, strict=True)
    ]


def _counts(num_resamples: int, num_items: int, generator: np.random.Generator) -> NDArray[np.int32]:
    """(R, S) how often each item is drawn when S items are drawn with replacement."""
    narrow = np.uint16 if num_items <= 1 << 16 else np.uint32  # half as many random bits to make
    counts_RS = np.empty((num_resamples, num_items), dtype=np.int32)
    for counts_S in counts_RS:  # a row fits the first-level cache, and no draw depends on the size of a block
        counts_S[:] = np.bincount(generator.integers(0, num_items, num_items, dtype=narrow), minlength=num_items)
    return counts_RS


def _checked(values: ArrayLike, num_items: int, name: str) -> NDArray[np.float64]:
    rows_KS = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if rows_KS.ndim != 2 or rows_KS.shape[1] != num_items or num_items < 2 or not np.isfinite(rows_KS).all():
        raise DataError(
            where=f"bootstrap: {name}",
            found=f"an array of shape {rows_KS.shape}, {int((~np.isfinite(rows_KS)).sum())} of its values not finite",
            expected=f"finite values of the same {num_items} test items, at least two",
            remedy="Compare two encoders on one version of one task.",
        )
    return rows_KS
