"""Probes find what is there, find nothing in noise, and give the same number twice."""

from __future__ import annotations

import numpy as np
import pytest

from sentdist.errors import DataError
from sentdist.evaluation.linear_models import probe_distribution, probe_regression

S, V = 600, 5
DRAW = np.random.default_rng(0)
SHARES = DRAW.dirichlet(np.full(V, 0.3), size=S)
MIXED = DRAW.standard_normal((V, 9))
SIGNAL = np.log(SHARES + 1e-2) @ MIXED  # a linear function away from the logits of the shares
NOISE = DRAW.standard_normal((S, 9))


def test_a_distribution_that_is_there_is_found_and_noise_is_not() -> None:
    reported, noise = probe_distribution(SIGNAL, SHARES), probe_distribution(NOISE, SHARES)
    assert reported.explained > 0.9
    assert noise.explained < 0.05
    assert reported.best < reported.cross_entropy < reported.floor
    assert reported.floor == noise.floor
    assert reported.num_test == S // 4


def test_the_floor_is_the_cross_entropy_of_the_mean() -> None:
    found = probe_distribution(NOISE, SHARES, seed=3)
    order = np.random.default_rng(3).permutation(S)
    test, train = order[: S // 4], order[S // 4 :]
    mean = SHARES[train].mean(axis=0)
    assert found.floor == pytest.approx(-(SHARES[test] * np.log(mean)).sum(axis=1).mean(), rel=1e-12)
    assert found.best == pytest.approx(-(SHARES[test] * np.log(SHARES[test])).sum(axis=1).mean(), rel=1e-12)


def test_hard_labels_are_classified_as_logistic_regression_does() -> None:
    from sklearn.linear_model import LogisticRegression

    labels = (np.median(SIGNAL, axis=0) < SIGNAL)[:, :2].sum(axis=1)
    order = np.random.default_rng(0).permutation(S)
    test, train = order[: S // 4], order[S // 4 :]
    inputs = (SIGNAL - SIGNAL[train].mean(axis=0)) / SIGNAL[train].std(axis=0)
    model = LogisticRegression(max_iter=500).fit(inputs[train], labels[train])
    expected = -model.predict_log_proba(inputs[test])[np.arange(len(test)), labels[test]].mean()
    assert probe_distribution(SIGNAL, np.eye(3)[labels]).cross_entropy == pytest.approx(expected, rel=1e-6)


def test_ridge_equals_scikit_learns() -> None:
    from sklearn.linear_model import Ridge
    from sklearn.metrics import r2_score

    targets = SIGNAL[:, :3] @ DRAW.standard_normal((3, 4)) + 0.3 * DRAW.standard_normal((S, 4))
    found = probe_regression(SIGNAL, targets)
    order = np.random.default_rng(0).permutation(S)
    test, train = order[: S // 4], order[S // 4 :]
    inputs = (SIGNAL - SIGNAL[train].mean(axis=0)) / SIGNAL[train].std(axis=0)
    predicted = Ridge(alpha=1.0).fit(inputs[train], targets[train]).predict(inputs[test])
    # scikit-learn's R² takes the test sentences' own mean as floor, ours that of the training sentences: nearly the same.
    assert found.r2 == pytest.approx(r2_score(targets[test], predicted, multioutput="variance_weighted"), abs=0.02)
    errors = ((targets[test] - predicted) ** 2).sum() / ((targets[test] - targets[train].mean(axis=0)) ** 2).sum()
    assert found.r2 == pytest.approx(1 - errors, rel=1e-9)
    assert found.r2 > 0.7
    assert probe_regression(NOISE, targets).r2 < 0.05


def test_the_same_seed_gives_the_same_number_another_another() -> None:
    first, again, other = (probe_distribution(SIGNAL, SHARES, seed=seed).cross_entropy for seed in (0, 0, 1))
    assert first == again != other


def test_sentences_without_targets_and_classes_unseen_are_left_out() -> None:
    shares = np.concatenate([SHARES, np.zeros((50, V))])
    rare = np.concatenate([shares, np.zeros((650, 1))], axis=1)
    channels = np.concatenate([SIGNAL, NOISE[:50]])
    assert probe_distribution(channels, shares) == probe_distribution(SIGNAL, SHARES)
    assert probe_distribution(channels, rare) == probe_distribution(SIGNAL, SHARES)


def test_bad_input_is_refused() -> None:
    with pytest.raises(DataError, match="2 sentences"):
        probe_distribution(SIGNAL[:2], SHARES[:2])
    with pytest.raises(DataError, match="1 classes"):
        probe_distribution(SIGNAL, np.ones((S, 1)))
    with pytest.raises(DataError, match="one row of targets"):
        probe_regression(SIGNAL, SHARES[:-1])
    with pytest.raises(DataError, match="never vary"):
        probe_regression(SIGNAL, np.ones((S, 2)))
