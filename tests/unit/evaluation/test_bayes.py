"""The Bayesian second opinion against published answers and simulations whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sentdist.errors import DataError
from sentdist.evaluation.bayes import hierarchy, outperforming, practical

# Eight schools (Rubin 1981; Gelman et al., Bayesian Data Analysis, §5.5): effects of coaching and their standard errors.
EFFECTS, ERRORS = (28, 8, -3, 7, -1, 1, 18, 12), (15, 10, 16, 11, 9, 11, 10, 18)


def test_eight_schools_are_those_of_the_book() -> None:
    found = hierarchy(EFFECTS, ERRORS, rope=0.0)
    assert found.mean == pytest.approx(7.9, abs=0.3) and found.spread == pytest.approx(6.6, abs=0.5)
    assert all(one.same == 0.0 and one.worse + one.better == pytest.approx(1.0) for one in (*found.tasks, found.next_task))
    assert found.tasks[0].better > found.tasks[7].better > found.tasks[4].better > 0.5, "drawn towards the mean, not past it"
    assert found.mean_of_tasks.better > found.next_task.better, "another school also differs by itself"


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
    found = hierarchy(d, s, rope=rope)
    assert found.next_task.better == pytest.approx(share, abs=0.03)
    assert found.mean == pytest.approx(float(weights @ means / weights.sum()), abs=0.05)


def test_probabilities_come_true() -> None:
    """Of other tasks of which at least so much is said, so many are as said."""
    draw, told, right = np.random.default_rng(1), 0.0, 0.0
    for _ in range(80):
        mean, errors = draw.normal(0, 1.0), draw.uniform(0.3, 0.8, 7)
        differences = draw.normal(draw.normal(mean, 0.7, 7), errors)
        told += hierarchy(differences, errors, rope=0.3).next_task.better
        right += draw.normal(mean, 0.7) > 0.3
    assert told / 80 == pytest.approx(right / 80, abs=0.1)


def test_one_task_is_the_correlated_t_test() -> None:
    """Ten folds, as baycomp 1.0.3 computes them: variance (1/n + 1/(folds − 1)) of the differences', n − 1 degrees."""
    x = np.array([0.61, 1.2, -0.3, 0.8, 1.9, 0.2, 0.4, 1.1, -0.1, 0.7])
    error = float(np.sqrt(np.var(x, ddof=1) * (1 / 10 + 1 / 9)))
    found = practical(float(x.mean()), error, rope=0.2, degrees=9)
    posterior = stats.t(9, x.mean(), error)
    assert (found.worse, found.better) == pytest.approx((posterior.cdf(-0.2), posterior.sf(0.2)))
    assert practical(0.0, 1.0, rope=1.0).same == pytest.approx(0.6827, abs=1e-4)


def test_the_share_of_pairs_that_are_won() -> None:
    found = outperforming([3, 2, 2, 5], [1, 2, 3, 1])
    assert found.probability == (1 + 0.5 + 0 + 1) / 4 and found.low < found.probability < found.high and not found.is_meaningful
    draw = np.random.default_rng(2)
    theirs = draw.normal(size=400)
    assert outperforming(theirs + draw.normal(1.0, 1.0, 400), theirs).probability == pytest.approx(stats.norm.cdf(1.0), abs=0.05)
    assert outperforming(np.arange(9) + 1.0, np.arange(9)).is_meaningful


@pytest.mark.parametrize(("won", "pairs", "told"), [(1, 1, 0), (2, 2, 0), (5, 5, 0), (6, 6, 1), (6, 7, 0), (0, 5, 0), (0, 7, -1)])
def test_a_few_wins_tell_what_the_sign_test_tells(won: int, pairs: int, told: int) -> None:
    found = outperforming([1.0] * won + [0.0] * (pairs - won), [0.5] * pairs)
    assert (found.low > 0.5) - (found.high < 0.5) == told
    assert (stats.binomtest(won, pairs).pvalue < 0.05) == (told != 0)


def test_what_says_nothing_is_refused() -> None:
    for differences, errors in (([1, 2], [1, 1]), ([1, 2, 3], [1, 0, 1])):
        with pytest.raises(DataError, match="tasks or more"):
            hierarchy(differences, errors, rope=0.1)
    with pytest.raises(DataError, match="above 0"):
        practical(1.0, 0.0, rope=0.1)
    with pytest.raises(DataError, match="pairs"):
        outperforming([1.0], [])
