"""SentEval's protocol: its optimizer, its early stopping, many models side by side, and its peer's accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from rayjobs.benchmarks.senteval_classifier import nested_accuracy
from sentdist.errors import DataError
from sentdist.evaluation import linear_models
from sentdist.evaluation import linear_models as transfer
from sentdist.evaluation.classification import PENALTIES
from sentdist.evaluation.linear_models import senteval_cross_validated, senteval_dev, senteval_split, trained_side_by_side


def _planted(num_rows: int = 240, width: int = 32, distance: float = 2.2, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Two clouds of unit variance whose centres are that far apart."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, num_rows)
    features = draw.normal(size=(num_rows, width))
    features += (labels[:, None] - 0.5) * distance / np.sqrt(width)
    return features.astype(np.float32), [str(label) for label in labels]


@pytest.mark.parametrize(("beside", "block"), [([], 64), ([np.arange(0, 150, 2)], 85)])
def test_a_model_is_torchs_adam_on_the_same_batches(beside: list[np.ndarray], block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights after four passes, against torch.optim.Adam with weight decay; beside a model that has every second row alone."""
    monkeypatch.setattr(linear_models, "MAX_PASSES", 0)
    features, labels = _planted(num_rows=150)
    rows = np.arange(150)
    train = [rows, *beside]
    found = trained_side_by_side(features, np.asarray(labels), train=train, dev=[rows] * len(train), penalties=[1e-2] * len(train))
    width, random = features.shape[1], np.random.RandomState(linear_models.SEED)
    start = np.random.default_rng(linear_models.SEED).uniform(-1, 1, size=(width + 1, 2, 1)) / np.sqrt(width)
    linear = torch.nn.Linear(width, 2)
    linear.weight.data, linear.bias.data = torch.tensor(start[:-1, :, 0].T).float(), torch.tensor(start[-1, :, 0]).float()
    adam = torch.optim.Adam(linear.parameters(), weight_decay=1e-2)
    gold = torch.tensor([int(label) for label in labels])
    for _ in range(4):
        order = random.permutation(rows)
        for first in range(0, 150, block):
            batch = np.array([row for row in order[first : first + block] if row in train[-1]])
            adam.zero_grad()
            torch.nn.functional.cross_entropy(linear(torch.from_numpy(features[batch])), gold[batch]).backward()
            adam.step()
    np.testing.assert_allclose(found.weights[:-1, :, -1], linear.weight.detach().numpy().T, atol=1e-5)
    np.testing.assert_allclose(found.weights[-1, :, -1], linear.bias.detach().numpy(), atol=1e-5)


def test_the_first_of_equal_looks_is_kept_and_six_without_a_gain_are_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is right at the first look, after four passes; each pass shuffles once."""
    features, labels = _planted(num_rows=600, distance=20.0)
    rows, random, same = np.arange(600), np.random.RandomState(0), np.random.RandomState(0)
    given = {"train": [rows], "dev": [rows], "penalties": [1e-5]}
    whole = trained_side_by_side(features, np.asarray(labels), random=random, **given)  # type: ignore[arg-type]
    for _ in range(4 * (1 + 6)):
        same.permutation(rows)
    assert random.random_sample() == same.random_sample()
    monkeypatch.setattr(linear_models, "MAX_PASSES", 0)
    first = trained_side_by_side(features, np.asarray(labels), random=np.random.RandomState(0), **given)  # type: ignore[arg-type]
    assert first.dev_accuracies.tolist() == [1.0]
    np.testing.assert_array_equal(whole.weights, first.weights)


def test_one_model_ends_and_keeps_its_best_weights_as_sentevals_does() -> None:
    """Written down again: a look at the dev rows every four passes; five without a gain are forgiven, also where gains lie between them;
    200 passes at most. These rows give the last gain right after the fifth."""
    features, labels = _planted(num_rows=200, width=16, distance=1.5, seed=5)
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
    features, labels = _planted(num_rows=150, distance=1.0, seed=3)
    gold, seed = np.asarray(labels), 2
    random, fit, test = np.random.RandomState(seed), np.arange(90), np.arange(90, 150)
    (penalty,) = _chosen(features, gold, _folds_of(fit, gold, seed), seed)
    order = random.permutation(fit)
    model = trained_side_by_side(features, gold, train=[order[4:]], dev=[order[:4]], penalties=[penalty], seed=seed, random=random)
    split = senteval_split(features, labels, train=fit, test=test, num_folds=3, seed=seed)
    assert split.penalties == (penalty,)
    np.testing.assert_array_equal(split.predicted, model.predict(features, 0, test))

    outer = _folds_of(np.arange(150), gold, seed)
    penalties = _chosen(features, gold, [pair for rows, _ in outer for pair in _folds_of(rows, gold, seed)], seed)
    orders = [np.random.RandomState(seed).permutation(rows) for rows, _ in outer]
    train, dev = [order[5:] for order in orders], [order[:5] for order in orders]
    models = trained_side_by_side(features, gold, train=train, dev=dev, penalties=penalties, seed=seed)
    whole = senteval_cross_validated(features, labels, num_folds=3, seed=seed)
    assert whole.penalties == tuple(penalties)
    for number, (_, held) in enumerate(outer):
        np.testing.assert_array_equal(whole.predicted[held], models.predict(features, number, held))


def test_of_penalties_that_do_equally_well_on_dev_the_weakest_is_taken() -> None:
    features, labels = _planted(num_rows=90, distance=30.0)
    parts = {"train": np.arange(50), "dev": np.arange(50, 70)}
    assert senteval_dev(features, labels, **parts) == 100.0
    assert senteval_split(features, labels, **parts, test=np.arange(70, 90)).penalties == (min(PENALTIES),)


def test_models_side_by_side_are_those_trained_alone() -> None:
    """Same rows to walk through, so the same weights, whatever the others learn and whenever they stop."""
    features, labels = _planted(num_rows=200)
    gold, rows = np.asarray(labels), np.arange(200)
    dev = [rows[:50], rows[50:100], rows[100:150]]
    penalties = [1e-5, 1e-2, 1e-3]
    together = trained_side_by_side(features, gold, train=[rows] * 3, dev=dev, penalties=penalties)
    for number in range(3):
        alone = trained_side_by_side(features, gold, train=[rows], dev=[dev[number]], penalties=[penalties[number]])
        np.testing.assert_allclose(together.weights[:, :, number], alone.weights[:, :, 0], atol=1e-4)
        assert together.dev_accuracies[number] == pytest.approx(alone.dev_accuracies[0])


def test_rows_of_others_do_not_teach_a_model() -> None:
    features, labels = _planted(num_rows=200, distance=9.0)
    flipped = np.asarray([*labels[:100], *("0" if label == "1" else "1" for label in labels[100:])])
    halves = [np.arange(100), np.arange(100, 200)]
    models = trained_side_by_side(features, flipped, train=halves, dev=halves, penalties=[1e-5, 1e-5])
    first, second = (models.predict(features, number, np.arange(200)) for number in range(2))
    assert np.mean(first != second) > 0.9, "each learned its own half's meaning of the labels"


def test_accuracy_is_that_of_sentevals_own_classifier() -> None:
    """Clouds that overlap, as wide and as long as sentence embeddings; one point is the spread of either over its seeds at this size."""
    features, labels = _planted(num_rows=1500)
    ours = senteval_cross_validated(features, labels, num_folds=3).accuracy
    theirs = nested_accuracy(features, [int(label) for label in labels], num_folds=3)
    assert 75.0 < ours < 95.0 and ours == pytest.approx(theirs, abs=1.0)


def test_a_seed_is_of_folds_weights_and_shuffles_and_sentevals_is_the_default() -> None:
    features, labels = _planted(num_rows=150)
    runs = [senteval_cross_validated(features, labels, num_folds=3, **seed) for seed in ({}, {"seed": 1111}, {"seed": 2})]  # type: ignore[arg-type]
    np.testing.assert_array_equal(runs[0].predicted, runs[1].predicted)
    assert (runs[1].predicted != runs[2].predicted).any()
    parts = {"train": np.arange(100), "test": np.arange(100, 150)}
    one, other = (senteval_split(features, labels, num_folds=3, seed=seed, **parts) for seed in (1111, 2))
    assert (one.predicted != other.predicted).any()


def test_a_given_seed_leaves_nothing_to_sentevals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that features say nothing of, so that each draw shows in what is predicted."""
    seeds: list[int] = []

    class Folds(StratifiedKFold):
        def __init__(self, *, n_splits: int, shuffle: bool, random_state: int) -> None:
            seeds.append(random_state)
            super().__init__(n_splits, shuffle=shuffle, random_state=random_state)

    monkeypatch.setattr("sklearn.model_selection.StratifiedKFold", Folds)
    features, labels = _planted(num_rows=150, distance=0.0)
    found = senteval_cross_validated(features, labels, num_folds=3, seed=2)
    assert seeds == [2] * (1 + 3)
    monkeypatch.setattr(transfer, "SEED", 7)
    np.testing.assert_array_equal(senteval_cross_validated(features, labels, num_folds=3, seed=2).predicted, found.predicted)


def test_one_stream_draws_the_rows_that_say_when_to_stop_and_then_the_shuffles() -> None:
    features, labels = _planted(num_rows=600, distance=0.0)
    rows, test, random = np.arange(100), np.arange(100, 600), np.random.RandomState(3)
    found = senteval_split(features, labels, train=rows, test=test, num_folds=3, seed=3)
    order = random.permutation(rows)
    model = trained_side_by_side(
        features, np.asarray(labels), train=[order[5:]], dev=[order[:5]], penalties=[*found.penalties], seed=3, random=random
    )
    np.testing.assert_array_equal(found.predicted, model.predict(features, 0, test))


def test_dev_chooses_the_penalty() -> None:
    """Features so small that the strongest penalty weighs."""
    features, labels = _planted(num_rows=160, distance=1.5, seed=2)
    features *= 0.1
    fit, dev = np.arange(60), np.arange(60, 130)
    models = trained_side_by_side(features, np.asarray(labels), train=[fit] * 4, dev=[dev] * 4, penalties=PENALTIES)
    best = int(np.argmax(models.dev_accuracies))
    assert best > 0 and [*senteval_split(features, labels, train=fit, dev=dev, test=np.arange(130, 160)).penalties] == [PENALTIES[best]]


def test_fixed_splits_choose_on_dev_and_never_look_at_test() -> None:
    features, labels = _planted(num_rows=600)
    parts = {"train": list(range(300)), "dev": list(range(300, 400)), "test": list(range(400, 600))}
    found = senteval_split(features, labels, **parts)  # type: ignore[arg-type]
    spoiled = [*labels[:400], *("0" if label == "1" else "1" for label in labels[400:])]
    again = senteval_split(features, spoiled, **parts)  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.predicted, found.predicted)
    assert again.accuracy == pytest.approx(100.0 - found.accuracy)


def test_without_dev_folds_within_train_choose() -> None:
    features, labels = _planted(num_rows=600)
    found = senteval_split(features, labels, train=list(range(400)), test=list(range(400, 600)), num_folds=3)
    assert found.accuracy > 75.0 and found.penalties[0] in PENALTIES
    np.testing.assert_array_equal(found.rows, np.arange(400, 600))


def test_rare_labels_are_refused() -> None:
    features, labels = _planted(num_rows=60)
    with pytest.raises(DataError, match="1 of 60 rows labelled 'rare'"):
        senteval_cross_validated(features, ["rare", *labels[1:]])


def test_the_accuracy_that_chooses_is_that_of_the_best_penalty_on_what_it_sees() -> None:
    features, labels = _planted(num_rows=120, distance=1.0, seed=1)
    features *= 0.2  # so small that penalties count, and each training part chooses its own
    gold, rows = np.asarray(labels), np.arange(120)

    def best(pairs: list[tuple[np.ndarray, np.ndarray]], num_folds: int) -> float:
        train, dev = ([pair[side] for pair in pairs for _ in PENALTIES] for side in (0, 1))
        found = trained_side_by_side(features, gold, train=train, dev=dev, penalties=PENALTIES * len(pairs)).dev_accuracies
        return 100 * float(found.reshape(-1, num_folds, len(PENALTIES)).mean(axis=1).max(axis=1).mean())

    def folds(of: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return _folds_of(of, gold, linear_models.SEED)

    assert senteval_dev(features, labels, train=rows[:80], dev=rows[80:]) == pytest.approx(best([(rows[:80], rows[80:])], 1), abs=0.01)
    assert senteval_dev(features, labels, train=rows[:80], num_folds=3) == pytest.approx(best(folds(rows[:80]), 3), abs=0.01)
    nested = best([pair for train, _ in folds(rows) for pair in folds(train)], 3)
    assert 40 < senteval_dev(features, labels, num_folds=3) == pytest.approx(nested, abs=0.01)
