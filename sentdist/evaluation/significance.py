"""Test whether systems differ, over training seeds and groups of test items, for a whole table; summaries over seeds.

The question is whether systems differ on average over other trainings *and* other test items. `variation.Column` estimates how the
scores of a column vary; differences are tested against it:

* **Many rows.** Marks use p over the whole table: the distribution of the greatest of all its differences, with the correlation that a
  common baseline and common items give them (max-t; Westfall & Young 1993). Intervals are simultaneous ones of the same distribution: 0 is
  outside exactly where p over the table is below 5 %. Which rows may be the best is the model confidence set (Hansen, Lunde & Nason 2011):
  rows are removed until the remaining ones cannot be distinguished.
* **Other tasks.** An average over tasks is about these tasks. `over_tasks` treats them as a random sample of tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.stats
from scipy.special import ndtr, ndtri  # the normal distribution, without the checks that scipy.stats makes of each number

from sentdist.errors import DataError
from sentdist.evaluation.variation import ALPHA, COPIES_WITHIN, DRAWS, NORMAL_GRID, About, Column, Floats, PairwiseDifferences, t_quantiles

POWER = 0.8  # the usual choice (Cohen 1988): four of five true differences are found
SATURATED = 90.0  # points, from which runs with equal scores have solved the task
ALIKE = "both vary alike with every seed and test item, so that their difference does not vary"
NOTHING_VARIES = "one seed and no test items: nothing varies"
ONE_GROUP = "test items that all belong together, by common texts or a group, count as one"


@dataclass(frozen=True, kw_only=True)
class OtherTasks:
    """95 % interval and p of the difference of averages on other tasks like these."""

    low: float
    high: float
    p: float


@dataclass(frozen=True, kw_only=True)
class Difference:
    """System minus baseline in points; without a test, `reason` says why.

    Args:
        error: standard error; 0 if nothing varies.
        low: 95 % interval to `high`, with the two-sided `table_p`: both over all comparisons of the table, used for marks and sentences.
        p: p of this difference alone.
        about: what the test generalizes to: other seeds and items, other items (same encoders), or other seeds (same items).
        detectable: smallest true difference found at the table's 5 % level with probability 0.8.
        num_seeds: of the side with fewer; None if neither has seeds.
        by_signs: p is that of the sign test, which cannot reach 5 % over the table with these seeds; the interval is extended to 0.
        enough_by_signs: number of seeds that could.
    """

    difference: float
    error: float = 0.0
    low: float | None = None
    high: float | None = None
    p: float | None = None
    table_p: float | None = None
    about: About = "nothing"
    reason: str = ""
    detectable: float | None = None
    num_seeds: int | None = None
    by_signs: bool = False
    enough_by_signs: int | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant over all comparisons of the table."""
        return self.table_p is not None and self.table_p < ALPHA


def against(columns: Sequence[Column], pairs_of: Sequence[Sequence[tuple[str, str]]]) -> list[list[Difference]]:
    """Test pairs (system, baseline) of each column; p is corrected over all, columns taken as independent, which is conservative."""
    found = []
    for column, named in zip(columns, pairs_of, strict=True):
        rows, others = (np.array([column.place(pair[side]) for pair in named], dtype=np.intp) for side in (0, 1))
        found.append((column, rows, others, column.pairs(rows, others)))
    num_tests = sum(int((pairs.errors > 0).sum()) for _, _, _, pairs in found)
    greatest = [np.sort(column.greatest(pairs, rows, others)) for column, rows, others, pairs in found if num_tests > 1]
    limit = _limit(greatest, num_tests)
    return [
        [_difference(column, pairs, place, rows[place], others[place], greatest, num_tests, limit) for place in range(len(rows))]
        for column, rows, others, pairs in found
    ]


class BestRows(NamedTuple):
    """Labels of rows: the highest mean, all in the model confidence set of the best (`tied`), all that differ from it (`worse`). Untestable
    rows are in neither set; both are empty if the highest row is untestable."""

    highest: str
    tied: frozenset[str]
    worse: frozenset[str]


def may_be_best(column: Column, *, num_columns: int = 1) -> BestRows:
    """Return which rows may be the best of a column.

    Args:
        num_columns: of the table; in 95 of 100 tables no best row is left out in any column.
    """
    best = int(np.argmax(column.means))
    if not column.is_testable[best]:
        return BestRows(column.entries[best].label, tied=frozenset(), worse=frozenset())
    alive = np.flatnonzero(column.is_testable)
    level = (1 - ALPHA) ** (1 / num_columns)
    while len(alive) > 1:
        first, second = (alive[side] for side in np.triu_indices(len(alive), 1))
        pairs = column.pairs(first, second)
        limit = float(np.quantile(column.greatest(pairs, first, second), level))
        worse = np.where(pairs.differences < 0, first, second)[(pairs.normal > limit) & (pairs.least_p < 2 * ndtr(-limit))]
        if not len(worse):
            break
        alive = np.setdiff1d(alive, worse)
    worse_rows = np.setdiff1d(np.flatnonzero(column.is_testable), alive)
    tied, worse_than_best = (frozenset(column.entries[row].label for row in rows) for rows in (alive, worse_rows))
    return BestRows(column.entries[best].label, tied=tied, worse=worse_than_best)


def over_tasks(differences_NT: Floats) -> OtherTasks | None:
    """Return the mean difference on other tasks, from (N, T) differences by seed and task; N = 1 if seeds are not paired.

    Seeds × tasks are treated like seeds × items. None for fewer than three tasks.
    """
    seeds, tasks = differences_NT.shape
    if tasks < 3:
        return None
    columns = differences_NT.mean(axis=0)
    left = differences_NT - columns - differences_NT.mean(axis=1, keepdims=True) + columns.mean()
    interaction = float(np.sum(left**2)) / ((seeds - 1) * (tasks - 1) * seeds * tasks) if seeds > 1 else 0.0
    of_tasks = max(0.0, float(columns.var(ddof=1)) / tasks - interaction)
    of_seeds = float(differences_NT.mean(axis=1).var(ddof=1)) / seeds if seeds > 1 else 0.0
    variance, mean = of_tasks + of_seeds, float(columns.mean())
    if variance <= 0:
        return None
    curve = (of_tasks * t_quantiles(np.array([tasks - 1.0]))[0] + of_seeds * t_quantiles(np.array([max(1.0, seeds - 1.0)]))[0]) / variance
    error = float(np.sqrt(variance))
    margin = error * float(np.interp(-ndtri(ALPHA / 2), NORMAL_GRID, curve))
    p = float(2 * ndtr(-np.interp(abs(mean) / error, curve, NORMAL_GRID)))
    return OtherTasks(low=mean - margin, high=mean + margin, p=p)


def _difference(
    column: Column, pairs: PairwiseDifferences, place: int, row: int, other: int, greatest: list[Floats], num_tests: int, limit: float
) -> Difference:
    difference = float(pairs.differences[place])
    counts = [len(column.entries[one].scores) for one in (row, other) if not column.is_fixed[one]]
    plain = Difference(difference=difference, num_seeds=min(counts, default=None))
    if pairs.about[place] == "nothing":
        return replace(plain, reason=_why_untested(column, row, other))
    least = float(pairs.least_p[place])
    p = max(float(2 * ndtr(-pairs.normal[place])), least)
    never = least > 0 and _table_p(least, greatest, num_tests) >= ALPHA
    by_signs = never and p == least
    margin = pairs.margin(place, limit)
    low, high = difference - margin, difference + margin
    return replace(
        plain, error=float(pairs.errors[place]), low=min(low, 0.0) if by_signs else low, high=max(high, 0.0) if by_signs else high, p=p,
        table_p=_table_p(p, greatest, num_tests), about=pairs.about[place], by_signs=by_signs,
        detectable=None if never else margin + float(ndtri(POWER) * pairs.errors[place]),
        enough_by_signs=_enough_by_signs(greatest, num_tests) if by_signs else None,
    )  # fmt: skip


def _why_untested(column: Column, row: int, other: int) -> str:
    alike = [column.entries[one] for one in (row, other) if column.is_copies[one]]
    if alike:
        runs = np.concatenate([column.entries[one].scores for one in (row, other)])
        if np.ptp(runs) < COPIES_WITHIN:
            saturated = "saturated: " if runs[0] >= SATURATED else ""
            return f"{saturated}all {len(runs)} runs score {runs[0]:.2f} on these test items, so they cannot be told apart"
        return (
            f"all {len(alike[0].scores)} seeds of {alike[0].label} score {alike[0].scores[0]:.2f}: what other seeds would give is not known"
        )
    has_items = column.has_items[row] and column.has_items[other]
    trained = [one for one in (row, other) if not column.is_fixed[one]]
    if has_items or (trained and all(column.has_seeds[one] for one in trained)):
        return ALIKE
    return ONE_GROUP if column.is_one_group else NOTHING_VARIES


def _enough_by_signs(greatest: list[Floats], num_tests: int) -> int:
    """The smallest number of seeds whose signs, if all agree, are significant over the table."""
    return next(seeds for seeds in itertools.count(2) if _table_p(2.0 ** (1 - seeds), greatest, num_tests) < ALPHA)


def _table_p(p: float, greatest: list[Floats], num_tests: int) -> float:
    """The probability that any difference of the table is this extreme; between p and Bonferroni's bound beyond 4000 draws."""
    if num_tests == 1:
        return p
    quantile = float(-ndtri(p / 2))
    within = np.prod([np.searchsorted(one, quantile, side="left") / len(one) for one in greatest])
    return float(min(1.0, num_tests * p, max(p, 1.0 - float(within) + 1.0 / DRAWS)))


def _limit(greatest: list[Floats], num_tests: int) -> float:
    """The |z| beyond which p over the table is below 5 %."""
    low, high = 1.0, float(NORMAL_GRID[-1])
    while high - low > 1e-9:
        middle = (low + high) / 2
        is_enough = _table_p(float(2 * ndtr(-middle)), greatest, num_tests) < ALPHA
        low, high = (low, middle) if is_enough else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The scores of one system on one task over n seeds; `sd` (divisor n − 1) and Student's interval over seeds are None for one seed."""

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    num_seeds: int


def summarize(scores: Sequence[float]) -> Summary:
    """Return mean, sample standard deviation and 95 % Student's t interval of the mean over seeds.

    Raises:
        DataError: no score, or one that is not finite.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise DataError(
            where="scores over seeds", found=f"{values.tolist()}", expected="at least one finite score",
            remedy="Leave out runs that have no score, and say so.",
        )  # fmt: skip
    mean = float(values.mean())
    if len(values) < 2:
        return Summary(mean=mean, sd=None, low=None, high=None, num_seeds=len(values))
    sd = float(values.std(ddof=1))
    margin = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * sd / len(values) ** 0.5
    return Summary(mean=mean, sd=sd, low=mean - margin, high=mean + margin, num_seeds=len(values))


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
