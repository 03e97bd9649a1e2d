"""The Bayesian second opinion against simulations whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sentdist.errors import DataError
from sentdist.evaluation.significance import another_task, outperforming, practical


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


def test_the_priors_are_flat() -> None:
    """The posterior on an even grid of means and of spreads, cell by cell."""
    d, s = np.array([1.0, 2.0, -0.2, 1.4, 0.6]), np.array([0.5, 0.8, 0.4, 0.6, 0.5])
    means, spreads = (one.ravel() for one in np.meshgrid(np.linspace(-9, 11, 401), np.arange(0.01, 12, 0.02)))
    weights = np.exp(stats.norm.logpdf(d, means[:, None], np.sqrt(s**2 + spreads[:, None] ** 2)).sum(axis=1))
    found = another_task(d, s, rope=0.5)
    for said, share in ((found.better, stats.norm.sf(0.5, means, spreads)), (found.worse, stats.norm.cdf(-0.5, means, spreads))):
        assert said == pytest.approx(float(weights @ share / weights.sum()), abs=0.003)  # the grid ends where little is left


def test_probabilities_come_true() -> None:
    """Of other tasks of which at least so much is said, so many are as said."""
    draw, reported, right = np.random.default_rng(1), 0.0, 0.0
    for _ in range(80):
        mean, errors = draw.normal(0, 1.0), draw.uniform(0.3, 0.8, 7)
        differences = draw.normal(draw.normal(mean, 0.7, 7), errors)
        reported += another_task(differences, errors, rope=0.3).better
        right += draw.normal(mean, 0.7) > 0.3
    assert reported / 80 == pytest.approx(right / 80, abs=0.1)


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


@pytest.mark.parametrize(("won", "pairs", "reported"), [(1, 1, 0), (2, 2, 0), (5, 5, 0), (6, 6, 1), (6, 7, 0), (0, 5, 0), (0, 7, -1)])
def test_a_few_wins_tell_what_the_sign_test_tells(won: int, pairs: int, reported: int) -> None:
    found = outperforming([1.0] * won + [0.0] * (pairs - won), [0.5] * pairs)
    assert (found.low > 0.5) - (found.high < 0.5) == reported
    assert (stats.binomtest(won, pairs).pvalue < 0.05) == (reported != 0)


def test_what_says_nothing_is_refused() -> None:
    for differences, errors in (([1, 2], [1, 1]), ([1, 2, 3], [1, 0, 1])):
        with pytest.raises(DataError, match="tasks or more"):
            another_task(differences, errors, rope=0.1)
    with pytest.raises(DataError, match="above 0"):
        practical(1.0, 0.0, rope=0.1)
    with pytest.raises(DataError, match="pairs"):
        outperforming([1.0], [])
