"""Which fields of a space matter, on scores whose causes are known."""

from __future__ import annotations

import numpy as np
import pytest

from sentdist.evaluation.search_statistics import LEAST_TRIALS, Field, _distribution, _Measure, importances

pytest.importorskip("optuna")

FIELDS = [
    Field(name="learning_rate", low=1e-6, high=1e-4, is_log=True),
    Field(name="phis", choices=("{0.01}", "{0.01, 0.02}", "{0.1}")),
    Field(name="weight", low=0.0, high=1.0),
]


def _trials(count: int) -> list[dict[str, float | str]]:
    random = np.random.default_rng(0)
    return [
        {
            "learning_rate": float(10 ** random.uniform(-6, -4)),
            "phis": str(random.choice(FIELDS[1].choices)),
            "weight": float(random.uniform()),
        }
        for _ in range(count)
    ]


def test_the_field_that_makes_the_scores_is_found_and_the_others_are_not() -> None:
    trials = _trials(48)
    noise = np.random.default_rng(1).normal(0, 0.1, len(trials))
    scores = [70 - 3 * abs(np.log10(float(trial["learning_rate"])) + 4.5) + one for trial, one in zip(trials, noise, strict=True)]
    found = importances(FIELDS, trials, scores)
    assert found is not None
    first, *others = found
    assert first.field == "learning_rate"
    assert first.is_significant
    assert first.low <= first.share <= first.high
    assert first.everywhere > 0.8
    assert not any(one.is_significant for one in others)
    assert sum(one.share for one in found) == pytest.approx(1)


def test_a_field_is_spread_as_the_space_says() -> None:
    optuna = pytest.importorskip("optuna")
    rate, phis, weight = map(_distribution, FIELDS)
    assert rate == optuna.distributions.FloatDistribution(1e-6, 1e-4, log=True)
    assert phis == optuna.distributions.CategoricalDistribution(FIELDS[1].choices)
    assert weight == optuna.distributions.FloatDistribution(0.0, 1.0, log=False)


def test_luck_is_not_reported_as_importance() -> None:
    trials = _trials(32)
    reported = [importances(FIELDS, trials, np.random.default_rng(seed).normal(70, 1, 32).tolist()) for seed in range(2)]
    assert sum(one.is_significant for found in reported if found is not None for one in found) <= 1
    shares = [[one.share for one in found or ()] for found in reported]
    assert shares == [sorted(one, reverse=True) for one in shares]


def test_luck_is_what_the_greatest_field_comes_to_when_scores_are_dealt_out_anew() -> None:
    trials, draw = _trials(32), np.random.default_rng(5)
    scores = draw.normal(70, 1, 32)
    found, measure = importances(FIELDS, trials, scores.tolist()), _Measure(FIELDS, trials)
    greatest = [measure.of_best(draw.permutation(scores)).max() for _ in range(60)]
    assert found is not None
    assert found[0].by_luck == pytest.approx(np.quantile(greatest, 0.95) / measure.of_best(scores).sum(), rel=0.35)


def test_too_few_trials_and_scores_that_are_all_one_say_nothing() -> None:
    trials = _trials(LEAST_TRIALS)
    assert importances(FIELDS, trials[:-1], np.arange(LEAST_TRIALS - 1.0).tolist()) is None
    assert importances(FIELDS, trials, [70.0] * LEAST_TRIALS) is None
