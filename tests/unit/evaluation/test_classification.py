"""The transfer protocol: what a linear classifier reads out of embeddings, and what it refuses to."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from sentdist.evaluation.classification import PENALTIES, classification_score, cross_validated, pair_features, split_classified


def _planted(num_rows: int = 240, width: int = 6, noise: float = 0.6, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, num_rows)
    features = draw.normal(size=(num_rows, width)) * noise
    features[:, 0] += 2.0 * labels - 1.0
    return features.astype(np.float32), [str(label) for label in labels]


def test_nested_folds_equal_the_obvious_loops() -> None:
    """Value for value, with models fitted one by one from zero and to a tighter end."""
    features, labels = _planted(num_rows=160, noise=0.9)
    gold, num_folds = np.asarray(labels), 4
    predicted = np.empty_like(gold)
    chosen = []
    for train, test in StratifiedKFold(num_folds, shuffle=True, random_state=1111).split(features, gold):
        means = []
        for penalty in PENALTIES:
            scores = []
            for inner, held in StratifiedKFold(num_folds, shuffle=True, random_state=1111).split(features[train], gold[train]):
                rows = train[inner]
                model = LogisticRegression(C=1 / (len(rows) * penalty), tol=1e-8, max_iter=5000).fit(
                    features[rows].astype(float), gold[rows]
                )
                scores.append(model.score(features[train[held]].astype(float), gold[train[held]]))
            means.append(round(100 * float(np.mean(scores)), 2))
        chosen.append(PENALTIES[int(np.argmax(means))])
        model = LogisticRegression(C=1 / (len(train) * chosen[-1]), tol=1e-8, max_iter=5000).fit(features[train].astype(float), gold[train])
        predicted[test] = model.predict(features[test].astype(float))
    found = cross_validated(features, labels, num_folds=num_folds)
    assert found.penalties == tuple(chosen)
    np.testing.assert_array_equal(found.predicted, predicted)
    assert found.accuracy == pytest.approx(100 * np.mean(predicted == gold)) == pytest.approx(found.items()["accuracy"].mean())


def test_fixed_splits_choose_on_dev_and_never_look_at_test() -> None:
    features, labels = _planted(num_rows=300, noise=0.9)
    train, dev, test = range(150), range(150, 200), range(200, 300)
    found = split_classified(features, labels, train=list(train), dev=list(dev), test=list(test))
    fits = [LogisticRegression(C=1 / (150 * penalty), tol=1e-8, max_iter=5000).fit(features[:150], labels[:150]) for penalty in PENALTIES]
    best = fits[int(np.argmax([round(100 * fit.score(features[150:200], labels[150:200]), 2) for fit in fits]))]
    np.testing.assert_array_equal(found.predicted, best.predict(features[200:]))
    spoiled = [*labels[:200], *("0" if label == "1" else "1" for label in labels[200:])]
    again = split_classified(features, spoiled, train=list(train), dev=list(dev), test=list(test))
    np.testing.assert_array_equal(again.predicted, found.predicted)
    assert again.accuracy == pytest.approx(100.0 - found.accuracy)


def test_f1_is_of_the_later_of_two_labels_and_absent_for_three() -> None:
    features, labels = _planted(noise=0.1)
    assert cross_validated(features, labels, num_folds=3).f1 == 100.0
    three = [*labels[:200], *["2"] * 40]
    assert cross_validated(features, three, num_folds=3).f1 is None


def test_pair_features_do_not_ask_which_sentence_is_first() -> None:
    draw = np.random.default_rng(0)
    first, second = draw.normal(size=(5, 3)), draw.normal(size=(5, 3))
    np.testing.assert_allclose(pair_features(first, second), np.hstack([np.abs(first - second), first * second]), rtol=1e-6)
    np.testing.assert_array_equal(pair_features(first, second), pair_features(second, first))


def test_rows_come_in_their_order_with_what_they_are_and_were_taken_for() -> None:
    found = classification_score(np.array(["a", "b", "a"]), np.array(["a", "b", "b"]), np.array([7, 2, 5]), [1.0])
    assert (found.rows.tolist(), found.gold.tolist(), found.predicted.tolist()) == ([2, 5, 7], ["b", "a", "a"], ["b", "b", "a"])


def test_of_penalties_that_do_equally_well_the_weakest_is_taken() -> None:
    features, labels = _planted(num_rows=120, noise=0.05)
    found = split_classified(features, labels, train=list(range(60)), dev=list(range(60, 90)), test=list(range(90, 120)))
    assert found.accuracy == 100.0 and found.penalties == (min(PENALTIES),)
