"""When a difference between two systems is more than chance: tests over training seeds, Williams' test over items, Holm over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.stats
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from sentdist.errors import DataError

TestName = Literal["welch", "one-sample", "bootstrap", "none"]
TEST_NAMES: dict[TestName, str] = {
    "welch": "Welch's two-sided test over seeds",
    "one-sample": "one-sample two-sided t-test over seeds against the fixed checkpoint",
    "bootstrap": "paired bootstrap over test items",
    "none": "no test",
}
# Seeds whose scores agree to this many points are one run under several names (a bug worth seeing, not a test worth making).
COPIES_WITHIN = 1e-9
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

    `adjusted_p` is p after Holm's correction over the tasks of the family; None for a difference outside any family.
    """

    difference: float
    low: float | None
    high: float | None
    p: float | None
    adjusted_p: float | None
    test: TestName
    reason: str = ""

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
    return _tested(difference, low, high, both.ttest_ind(usevar="unequal")[1], "welch")


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
    return _tested(difference, interval.low - baseline, interval.high - baseline, result.pvalue, "one-sample")


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


def in_words(found: Difference, *, system: str, baseline: str, num_family: int | None = None, level: float = 0.95) -> str:
    """One sentence that a reader without statistics understands; `num_family` is the number of tasks that Holm's correction covers."""
    direction = "more" if found.difference >= 0 else "less"
    opening = f"{system} scores {abs(found.difference):.2f} points {direction} than {baseline}"
    if found.p is None or found.low is None or found.high is None:
        return f"{opening}; whether that is more than chance is not known ({found.reason})."
    p = f"p {_p_text(found.p)}"
    if found.adjusted_p is not None:
        p += f", {_p_text(found.adjusted_p)} after Holm's correction" + (f" over {num_family} tasks" if num_family else "")
    decisive = found.decisive_p
    assert decisive is not None
    verdict = "more than chance explains" if decisive < 0.05 else "a hint, no more" if decisive < 0.1 else "no more than chance alone does"
    reach = ", for these very runs; other seeds were not tried" if found.test == "bootstrap" else ""
    interval = f"{100 * level:g} % interval {found.low:+.2f} to {found.high:+.2f}"
    return f"{opening} ({interval}; {TEST_NAMES[found.test]}, {p}): {verdict}{reach}."


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
