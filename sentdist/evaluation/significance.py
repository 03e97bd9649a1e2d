"""When a difference between two systems is more than chance: tests over training seeds, Williams' test over items, Holm over tasks,
words."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import scipy.stats
from statsmodels.stats.power import TTestIndPower, TTestPower
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from sentdist.errors import DataError

TestName = Literal["welch", "one-sample", "bootstrap", "williams", "none"]
TEST_NAMES: dict[TestName, str] = {
    "welch": "Welch's two-sided test over seeds",
    "one-sample": "one-sample two-sided t-test over seeds against the fixed checkpoint",
    "bootstrap": "paired bootstrap over test items",
    "williams": "Williams' test over test items",
    "none": "no test",
}
# Seeds whose scores agree to this many points are one run under several names (a bug worth seeing, not a test worth making).
COPIES_WITHIN = 1e-9
ALPHA = 0.05
POWER = 0.8  # the usual choice (Cohen 1988): four true differences of five are found
MOST_SEEDS = 1000
COPIES = "no spread over seeds: the runs are copies of each other"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The scores of one system on one task over n seeds. `sd` (n − 1 in the divisor) and the t interval are None for one seed."""

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    num_seeds: int


@dataclass(frozen=True, kw_only=True)
class Difference:
    """System minus baseline in points, with its interval and two-sided p; None, with the reason, where no test can be made.

    `adjusted_p` is p after Holm's correction over the tasks of the family; None for a difference outside any family. `effect` is the
    difference in standard deviations over seeds, `num_seeds` the seeds of the side that has fewer; None where seeds were not tested.
    """

    difference: float
    low: float | None
    high: float | None
    p: float | None
    adjusted_p: float | None
    test: TestName
    reason: str = ""
    effect: float | None = None
    num_seeds: int | None = None

    @property
    def seeds_needed(self) -> float | None:
        """How many seeds a side would tell a difference of this size from chance (see `seeds_needed`)."""
        if self.effect is None or self.test not in ("welch", "one-sample"):
            return None
        alpha = ALPHA * self.p / self.adjusted_p if self.p and self.adjusted_p else ALPHA  # Holm's share of it
        return seeds_needed(self.effect, against_fixed=self.test == "one-sample", alpha=alpha)

    @property
    def decisive_p(self) -> float | None:
        """The p that marks and words go by: corrected where a correction applies."""
        return self.p if self.adjusted_p is None else self.adjusted_p


@dataclass(frozen=True, kw_only=True)
class WilliamsTest:
    """Williams' t with n − 3 degrees of freedom and its two-sided p."""

    t: float
    degrees: int
    p: float


def summarize(scores: Sequence[float], *, level: float = 0.95) -> Summary:
    """Mean ± sample standard deviation over seeds, with Student's t interval of the mean."""
    values = _finite(scores, "scores over seeds")
    mean = float(values.mean())
    if len(values) < 2:
        return Summary(mean=mean, sd=None, low=None, high=None, num_seeds=len(values))
    sd = float(values.std(ddof=1))
    margin = float(scipy.stats.t.ppf((1 + level) / 2, len(values) - 1)) * sd / len(values) ** 0.5
    return Summary(mean=mean, sd=sd, low=mean - margin, high=mean + margin, num_seeds=len(values))


def compare_seeds(scores: Sequence[float], baseline: Sequence[float], *, level: float = 0.95) -> Difference:
    """Welch's two-sided test: unequal variances, each seed one observation (Welch 1947). Needs two seeds on both sides."""
    ours, theirs = _finite(scores, "scores over seeds"), _finite(baseline, "baseline scores over seeds")
    difference = float(ours.mean() - theirs.mean())
    if min(len(ours), len(theirs)) < 2:
        return _untested(difference, "one seed: no test over seeds")
    if max(np.ptp(ours), np.ptp(theirs)) < COPIES_WITHIN:
        return _untested(difference, COPIES)
    # statsmodels, because scipy warns when one of the two has no spread, which is no error here.
    both = CompareMeans(DescrStatsW(ours), DescrStatsW(theirs))
    low, high = both.tconfint_diff(alpha=1 - level, usevar="unequal")
    spread = float(np.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / 2))
    return replace(
        _tested(difference, low, high, both.ttest_ind(usevar="unequal")[1], "welch"),
        effect=difference / spread,
        num_seeds=min(len(ours), len(theirs)),
    )


def compare_with_fixed(scores: Sequence[float], baseline: float, *, level: float = 0.95) -> Difference:
    """One-sample two-sided t-test against a checkpoint that has one score and no seeds: the baseline counts as a constant."""
    ours = _finite(scores, "scores over seeds")
    difference = float(ours.mean()) - float(_finite([baseline], "baseline")[0])
    if len(ours) < 2:
        return _untested(difference, "one seed: no test over seeds")
    if np.ptp(ours) < COPIES_WITHIN:
        return _untested(difference, COPIES)
    result = scipy.stats.ttest_1samp(ours, baseline)
    interval = result.confidence_interval(level)
    return replace(
        _tested(difference, interval.low - baseline, interval.high - baseline, result.pvalue, "one-sample"),
        effect=difference / float(ours.std(ddof=1)),
        num_seeds=len(ours),
    )


@cache
def seeds_needed(effect: float, *, against_fixed: bool, power: float = POWER, alpha: float = ALPHA) -> float:
    """Seeds a side with which a t-test finds a true difference of `effect` standard deviations with probability `power`; inf above 1000.

    Two-sided, at level alpha, equal numbers of seeds on both sides (or on the one that has seeds). The effect is taken at its word: one
    that was measured on three seeds is itself known badly, so the number is an order of magnitude.
    """
    solver = TTestPower() if against_fixed else TTestIndPower()

    def reached(num_seeds: int) -> float:
        return float(solver.power(abs(effect), num_seeds, alpha, alternative="two-sided"))

    if effect == 0 or reached(MOST_SEEDS) < power:
        return math.inf
    # Power grows with the seeds. statsmodels' own root finder (0.15) gives up on effects above 8 or so.
    return 2 + bisect.bisect_left(range(2, MOST_SEEDS), power, key=reached)


def williams(gold_with_system: float, gold_with_baseline: float, system_with_baseline: float, *, num_items: int) -> WilliamsTest:
    """Williams' test that two correlations with the same gold scores are equal (Williams 1959; Steiger 1980, Eq. 7).

    Correlations in [−1, 1], not × 100. Exact for Pearson's on normal data; with Spearman's it is the usual approximation, and the
    bootstrap, which assumes nothing, is to be preferred where items are at hand.
    """
    r12, r13, r23, n = gold_with_system, gold_with_baseline, system_with_baseline, num_items
    if n < 4 or not all(np.isfinite(r) and abs(r) <= 1 for r in (r12, r13, r23)):
        raise DataError(
            where="Williams' test",
            found=f"correlations {r12}, {r13}, {r23} over {n} items",
            expected="three correlations in [-1, 1] over at least 4 items",
            remedy="Divide scores by 100.",
        )
    if r12 == r13:
        return WilliamsTest(t=0.0, degrees=n - 3, p=1.0)
    determinant = max(0.0, 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23)
    average = (r12 + r13) / 2
    variance = 2 * (n - 1) / (n - 3) * determinant + average**2 * (1 - r23) ** 3
    t = float((r12 - r13) * np.sqrt((n - 1) * (1 + r23) / variance)) if variance > 0 else float(np.copysign(np.inf, r12 - r13))
    return WilliamsTest(t=t, degrees=n - 3, p=float(2 * scipy.stats.t.sf(abs(t), n - 3)))


def compare_correlations(
    gold_with_system: float, gold_with_baseline: float, system_with_baseline: float, *, num_items: int, level: float = 0.95
) -> Difference:
    """Williams' test as a difference × 100; its interval is the one that belongs to the test: difference ± t(n − 3) standard errors."""
    found = williams(gold_with_system, gold_with_baseline, system_with_baseline, num_items=num_items)
    difference = 100 * (gold_with_system - gold_with_baseline)
    margin = 0.0 if found.t == 0 else abs(difference / found.t) * float(scipy.stats.t.ppf((1 + level) / 2, found.degrees))
    return _tested(difference, difference - margin, difference + margin, found.p, "williams")


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction over a family of tasks (Holm 1979); tasks without a test stay None and do not count.

    The k-th smallest of m becomes the greatest of (m − j + 1) p(j) over j ≤ k, at most 1. Written out because statsmodels' multipletests
    (0.15) collects garbage on each call: 20 to 100 ms, which was most of the time of a report. A test holds the two equal.
    """
    known = np.array([p for p in p_values if p is not None])
    order = np.argsort(known)
    adjusted = np.empty(len(known))
    adjusted[order] = np.minimum(np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1)), 1.0)
    remaining = iter(adjusted.tolist())
    return [None if p is None else next(remaining) for p in p_values]


def in_words(
    found: Difference,
    *,
    system: str,
    baseline: str,
    over_items: Difference | None = None,
    num_family: int | None = None,
    exploratory: str = "",
    level: float = 0.95,
) -> str:
    """What a comparison says to a reader without statistics.

    over_items: the same comparison over test items, told beside the one over seeds; num_family: the number of tasks that Holm's correction
    covers; exploratory: why this comparison is no evidence.
    """
    direction = "above" if found.difference >= 0 else "below"
    sentence = f"{system} is {abs(found.difference):.2f} points {direction} {baseline}"
    if found.p is None or found.low is None or found.high is None:
        sentence += f"; whether that is more than chance is not defined ({found.reason})."
    else:
        interval = f"{100 * level:g} % interval {found.low:+.2f} to {found.high:+.2f}"
        sentence += f" ({interval}; {TEST_NAMES[found.test]}, {_p_words(found, num_family)}): {_verdict(found)}."
    if over_items is not None and over_items.low is not None and over_items.high is not None and over_items is not found:
        sentence += (
            f" On other test items these very runs would differ by {over_items.low:+.2f} to {over_items.high:+.2f}"
            f" ({_p_words(over_items, None)}, paired bootstrap)."
        )
    return sentence + (f" Exploratory: {exploratory}." if exploratory else "")


def _verdict(found: Difference) -> str:
    """What the p that counts allows to say, and how many seeds would allow more."""
    decisive_p = found.decisive_p
    assert decisive_p is not None
    if found.test in ("bootstrap", "williams"):
        said = "more than other test items explain" if decisive_p < ALPHA else "no more than other test items may give"
        return f"{said}, for these very runs; other seeds were not tried"
    if decisive_p < ALPHA:
        return "more than chance explains"
    needed, num_seeds = found.seeds_needed, found.num_seeds
    assert needed is not None and num_seeds is not None
    said = f"with {num_seeds} seeds this cannot be told from chance"
    needed = max(needed, num_seeds + 1)  # the solver takes both spreads for equal, Welch's test does not
    many = f"more than {MOST_SEEDS}" if math.isinf(needed) else f"about {needed:.0f}"
    return f"{said}; {many} seeds would be needed ({100 * POWER:.0f} % power, {100 * ALPHA:.0f} % level)"


def _p_words(found: Difference, num_family: int | None) -> str:
    assert found.p is not None
    if found.adjusted_p is None:
        return f"p {_p_text(found.p)}"
    over = f" over {num_family} tasks" if num_family else ""
    return f"p {_p_text(found.p)}, {_p_text(found.adjusted_p)} after Holm's correction{over}"


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _tested(difference: float, low: float, high: float, p: float, test: TestName) -> Difference:
    return Difference(difference=difference, low=float(low), high=float(high), p=float(p), adjusted_p=None, test=test)


def _untested(difference: float, reason: str) -> Difference:
    return Difference(difference=difference, low=None, high=None, p=None, adjusted_p=None, test="none", reason=reason)


def _finite(scores: Sequence[float], where: str) -> np.ndarray:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise DataError(
            where=where,
            found=f"{values.tolist()}",
            expected="at least one finite score",
            remedy="Leave out runs that have no score, and say so.",
        )
    return values
