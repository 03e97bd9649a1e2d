"""The transfer protocol: a linear classifier on embeddings, by scikit-learn and by SentEval's optimizer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from sentdist.evaluation import linear_models
from sentdist.evaluation.classification import PENALTIES, classification_score, cross_validated, pair_features, split_classified
from sentdist.evaluation.linear_models import senteval_cross_validated, senteval_dev, senteval_split, trained_side_by_side


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
    found = cross_validated(features, labels, num_folds=num_folds, where="t")
    assert found.penalties == tuple(chosen)
    np.testing.assert_array_equal(found.predicted, predicted)
    assert found.accuracy == pytest.approx(100 * np.mean(predicted == gold)) == pytest.approx(found.items()["accuracy"].mean())


def test_fixed_splits_choose_on_dev_and_never_look_at_test() -> None:
    features, labels = _planted(num_rows=300, noise=0.9)
    train, dev, test = range(150), range(150, 200), range(200, 300)
    found = split_classified(features, labels, train=list(train), dev=list(dev), test=list(test), where="t")
    fits = [LogisticRegression(C=1 / (150 * penalty), tol=1e-8, max_iter=5000).fit(features[:150], labels[:150]) for penalty in PENALTIES]
    best = fits[int(np.argmax([round(100 * fit.score(features[150:200], labels[150:200]), 2) for fit in fits]))]
    np.testing.assert_array_equal(found.predicted, best.predict(features[200:]))
    spoiled = [*labels[:200], *("0" if label == "1" else "1" for label in labels[200:])]
    again = split_classified(features, spoiled, train=list(train), dev=list(dev), test=list(test), where="t")
    np.testing.assert_array_equal(again.predicted, found.predicted)
    assert again.accuracy == pytest.approx(100.0 - found.accuracy)


def test_f1_is_of_the_later_of_two_labels_and_absent_for_three() -> None:
    features, labels = _planted(noise=0.1)
    assert cross_validated(features, labels, num_folds=3, where="t").f1 == 100.0
    three = [*labels[:200], *["2"] * 40]
    assert cross_validated(features, three, num_folds=3, where="t").f1 is None


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
    found = split_classified(features, labels, train=list(range(60)), dev=list(range(60, 90)), test=list(range(90, 120)), where="t")
    assert found.accuracy == 100.0 and found.penalties == (min(PENALTIES),)


def _planted_of_transfer(num_rows: int = 240, width: int = 32, distance: float = 2.2, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Two clouds of unit variance whose centres are that far apart."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, num_rows)
    features = draw.normal(size=(num_rows, width))
    features += (labels[:, None] - 0.5) * distance / np.sqrt(width)
    return features.astype(np.float32), [str(label) for label in labels]


def test_one_model_ends_and_keeps_its_best_weights_as_sentevals_does() -> None:
    """Written down again: a look at the dev rows every four passes; five without a gain are forgiven, also where gains lie between them;
    200 passes at most. These rows give the last gain right after the fifth."""
    features, labels = _planted_of_transfer(num_rows=200, width=16, distance=1.5, seed=5)
    train, dev = np.arange(120), np.arange(120, 200)
    found = trained_side_by_side(features, np.asarray(labels), train=[train], dev=[dev], penalties=[1e-3])
    inputs, gold, random = torch.from_numpy(features), torch.tensor([int(label) for label in labels]), np.random.RandomState(1111)
    start = np.random.default_rng(1111).uniform(-1, 1, size=(17, 2, 1)) / 4
    linear = torch.nn.Linear(16, 2)
    linear.weight.data, linear.bias.data = torch.tensor(start[:-1, :, 0].T).float(), torch.tensor(start[-1, :, 0]).float()
    adam = torch.optim.Adam(linear.parameters(), weight_decay=1e-3)
    best, kept, misses, passes = -1.0, linear.weight.data, 0, 0
    while misses <= 5 and passes <= 200:
        for _ in range(4):
            order = random.permutation(train)
            for rows in (order[:64], order[64:]):
                adam.zero_grad()
                torch.nn.functional.cross_entropy(linear(inputs[rows]), gold[rows]).backward()
                adam.step()
        passes += 4
        accuracy = float((linear(inputs[dev]).argmax(dim=1) == gold[dev]).double().mean())
        if accuracy > best:
            best, kept = accuracy, linear.weight.data.clone()
        else:
            misses += 1
    assert found.dev_accuracies.tolist() == [pytest.approx(best)]
    np.testing.assert_allclose(found.weights[:-1, :, 0], kept.numpy().T, atol=1e-5)


def _folds_of(rows: np.ndarray, gold: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    splitter = StratifiedKFold(3, shuffle=True, random_state=seed)
    return [(rows[train], rows[held]) for train, held in splitter.split(rows, gold[rows])]


def _chosen(features: np.ndarray, gold: np.ndarray, folds: list[tuple[np.ndarray, np.ndarray]], seed: int) -> list[float]:
    """The penalty of the best mean over each three folds, the first of equals."""
    train, dev = ([pair[side] for pair in folds for _ in PENALTIES] for side in (0, 1))
    models = trained_side_by_side(features, gold, train=train, dev=dev, penalties=PENALTIES * len(folds), seed=seed)
    means = np.round(100 * models.dev_accuracies.reshape(-1, 3, len(PENALTIES)).mean(axis=1), 2)
    return [PENALTIES[row.tolist().index(max(row))] for row in means]


def test_the_last_models_look_at_a_twentieth_of_their_rows_and_train_on_the_others() -> None:
    """As the folds choose the penalty, of training rows alone; with a seed of one's own."""
    features, labels = _planted_of_transfer(num_rows=150, distance=1.0, seed=3)
    gold, seed = np.asarray(labels), 2
    random, fit, test = np.random.RandomState(seed), np.arange(90), np.arange(90, 150)
    (penalty,) = _chosen(features, gold, _folds_of(fit, gold, seed), seed)
    order = random.permutation(fit)
    model = trained_side_by_side(features, gold, train=[order[4:]], dev=[order[:4]], penalties=[penalty], seed=seed, random=random)
    split = senteval_split(features, labels, train=fit, test=test, num_folds=3, seed=seed, where="t")
    assert split.penalties == (penalty,)
    np.testing.assert_array_equal(split.predicted, model.predict(features, 0, test))

    outer = _folds_of(np.arange(150), gold, seed)
    penalties = _chosen(features, gold, [pair for rows, _ in outer for pair in _folds_of(rows, gold, seed)], seed)
    orders = [np.random.RandomState(seed).permutation(rows) for rows, _ in outer]
    train, dev = [order[5:] for order in orders], [order[:5] for order in orders]
    models = trained_side_by_side(features, gold, train=train, dev=dev, penalties=penalties, seed=seed)
    whole = senteval_cross_validated(features, labels, num_folds=3, seed=seed, where="t")
    assert whole.penalties == tuple(penalties)
    for number, (_, held) in enumerate(outer):
        np.testing.assert_array_equal(whole.predicted[held], models.predict(features, number, held))


def test_of_penalties_that_do_equally_well_on_dev_the_weakest_is_taken() -> None:
    features, labels = _planted_of_transfer(num_rows=90, distance=30.0)
    parts = {"train": np.arange(50), "dev": np.arange(50, 70)}
    assert senteval_dev(features, labels, **parts, where="t") == 100.0
    assert senteval_split(features, labels, **parts, test=np.arange(70, 90), where="t").penalties == (min(PENALTIES),)


def test_the_accuracy_that_chooses_is_that_of_the_best_penalty_on_what_it_sees() -> None:
    features, labels = _planted_of_transfer(num_rows=120, distance=1.0, seed=1)
    features *= 0.2  # so small that penalties count, and each training part chooses its own
    gold, rows = np.asarray(labels), np.arange(120)

    def best(pairs: list[tuple[np.ndarray, np.ndarray]], num_folds: int) -> float:
        train, dev = ([pair[side] for pair in pairs for _ in PENALTIES] for side in (0, 1))
        found = trained_side_by_side(features, gold, train=train, dev=dev, penalties=PENALTIES * len(pairs)).dev_accuracies
        return 100 * float(found.reshape(-1, num_folds, len(PENALTIES)).mean(axis=1).max(axis=1).mean())

    def folds(of: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return _folds_of(of, gold, linear_models.SEED)

    assert senteval_dev(features, labels, train=rows[:80], dev=rows[80:], where="t") == pytest.approx(
        best([(rows[:80], rows[80:])], 1), abs=0.01
    )
    assert senteval_dev(features, labels, train=rows[:80], num_folds=3, where="t") == pytest.approx(best(folds(rows[:80]), 3), abs=0.01)
    nested = best([pair for train, _ in folds(rows) for pair in folds(train)], 3)
    assert 40 < senteval_dev(features, labels, num_folds=3, where="t") == pytest.approx(nested, abs=0.01)
