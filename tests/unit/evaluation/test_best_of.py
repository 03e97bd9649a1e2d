"""The optimism of a chosen trial; means and a Bayesian second opinion."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sentdist.evaluation.search_statistics import optimism
from sentdist.evaluation.significance import another_task, outperforming, practical, summarize
from sentdist.evaluation.sts import mean_of_all


def test_optimism_is_what_chose_minus_what_fresh_seeds_give() -> None:
    found = optimism(80.0, [78.0, 79.0, 80.0])
    # t(0.975, 2) = 4.303 from any table; 4.303 · 1 / √3 = 2.484.
    assert (found.points, found.num_fresh) == (1.0, 3)
    assert (found.low, found.high) == pytest.approx((1 - 2.484, 1 + 2.484), abs=1e-3)
    assert not found.is_significant
    assert optimism(80.0, [77.0, 77.1, 76.9]).is_significant and optimism(70.0, [77.0, 77.1, 76.9]).is_significant, "above or below"
    alone = optimism(80.0, [79.0])
    assert (alone.points, alone.low, alone.is_significant) == (1.0, None, False)


def test_a_mean_is_of_all_values_or_none() -> None:
    assert (mean_of_all(iter([1.0, 2.0, 6.0]), None), mean_of_all([1.0, 4.0], [2.0, 1.0]), mean_of_all([0.0], None)) == (3.0, 2.0, 0.0)
    assert [mean_of_all(values, None) for values in ([1.0, None], [None], [])] == [None] * 3


def test_summary_and_its_interval_by_hand() -> None:
    found, alone = summarize([80.0, 82.0, 84.0]), summarize([80.0])
    assert (found.mean, found.sd, found.num_seeds) == (82.0, 2.0, 3)
    # t(0.975, 2) = 4.303 from any table; 4.303 · 2 / √3 = 4.968.
    assert (found.low, found.high) == pytest.approx((82 - 4.968, 82 + 4.968), abs=1e-3)
    assert (alone.mean, alone.sd, alone.low, alone.high, alone.num_seeds) == (80.0, None, None, None, 1)


def test_the_integral_is_that_of_a_simulation() -> None:
    """Draws of the model itself, weighted by how well they explain the differences."""
    draw, rope = np.random.default_rng(0), 0.5
    d, s = np.array([1.0, 2.0, -0.2, 1.4, 0.6]), np.array([0.5, 0.8, 0.4, 0.6, 0.5])
    spreads = 12 * draw.random(120_000) ** 2
    means = draw.normal(d.mean(), 4.0, len(spreads))
    logs = stats.norm.logpdf(d, means[:, None], np.sqrt(s**2 + spreads[:, None] ** 2)).sum(axis=1)
    logs += 0.5 * np.log(spreads) - stats.norm.logpdf(means, d.mean(), 4.0)  # flat priors instead of those that were drawn from
    weights = np.exp(logs - logs.max())
    further = draw.normal(means, spreads)
    share = float(weights @ (further > rope) / weights.sum())
    found = another_task(d, s, rope=rope)
    assert found.better == pytest.approx(share, abs=0.03)
    assert found.worse + found.same + found.better == pytest.approx(1.0)


def test_one_task_is_a_normal_posterior() -> None:
    assert practical(0.0, 1.0, rope=1.0).same == pytest.approx(0.6827, abs=1e-4)
    found = practical(1.96, 1.0, rope=0.0)
    assert (found.same, found.worse) == pytest.approx((0.0, 0.025), abs=1e-4)


def test_the_share_of_pairs_that_are_won() -> None:
    found = outperforming([3, 2, 2, 5], [1, 2, 3, 1])
    assert found.probability == (1 + 0.5 + 0 + 1) / 4 and found.low < found.probability < found.high and not found.is_meaningful
    draw = np.random.default_rng(2)
    theirs = draw.normal(size=400)
    assert outperforming(theirs + draw.normal(1.0, 1.0, 400), theirs).probability == pytest.approx(stats.norm.cdf(1.0), abs=0.05)
    assert outperforming(np.arange(9) + 1.0, np.arange(9)).is_meaningful
    often = outperforming([1.0] * 600 + [0.0] * 400, [0.5] * 1000)
    assert often.low > 0.5 and not often.is_meaningful, "above chance, and surely below three of four"


def test_a_few_wins_tell_what_the_sign_test_tells() -> None:
    for won, pairs, reported in [(1, 1, 0), (2, 2, 0), (5, 5, 0), (6, 6, 1), (6, 7, 0), (0, 5, 0), (0, 7, -1)]:
        found = outperforming([1.0] * won + [0.0] * (pairs - won), [0.5] * pairs)
        assert (found.low > 0.5) - (found.high < 0.5) == reported
        assert (stats.binomtest(won, pairs).pvalue < 0.05) == (reported != 0)
