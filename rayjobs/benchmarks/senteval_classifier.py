"""SentEval's transfer classifier, reimplemented from its description and settings: the peer of `sentdist.evaluation.classification`.

Logistic regression in torch by Adam (learning rate 1e-3, batch 64), L2 as Adam's weight decay from 1e-5 to 1e-2,
four passes between looks at the dev rows, stopped after the sixth look that brought nothing better (tenacity 5), at most 200 passes;
the best weights are kept. Conneau & Kiela 2018, arXiv 1803.05449; with the settings of SimCSE's "test" mode.
Models of one training set are trained side by side, which changes nothing for any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor
from torch.nn import functional as F

SEED = 1111
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
BATCH, PASSES, MAX_PASSES, TENACITY = 64, 4, 200, 5
LEARNING_RATE, BETAS, EPSILON = 1e-3, (0.9, 0.999), 1e-8

Rows = np.ndarray


class Classifiers:
    """K logistic regressions over rows of one matrix, each with training rows, dev rows and a penalty of its own."""

    def __init__(
        self, features: Tensor, labels: Tensor, *, train: Sequence[Rows], dev: Sequence[Rows], penalties: Sequence[float], seed: int
    ) -> None:
        self.features, self.labels = features, labels
        self.train, self.dev = list(train), list(dev)
        self.decay = torch.tensor(penalties)[:, None, None]
        num_classes, width = int(labels.max()) + 1, features.shape[1]
        torch.manual_seed(seed)
        linear = torch.nn.Linear(width, num_classes)  # every one of SentEval's begins with this seed, so with these weights
        start = torch.cat([linear.weight.detach().T, linear.bias.detach()[None]])
        self.weights = start.repeat(len(penalties), 1, 1)  # (K, D + 1, V), the bias last: weight decay takes it along
        self.random = [np.random.RandomState(seed) for _ in penalties]

    def fit(self) -> None:
        """Train all to their ends; `weights` are the best of each, `best` their dev accuracies."""
        count = len(self.train)
        self.best, kept, misses = np.full(count, -1.0), self.weights.clone(), np.zeros(count, dtype=int)
        first, second = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        steps = torch.zeros(count)
        active, passes = np.arange(count), 0
        while len(active) and passes <= MAX_PASSES:
            for _ in range(PASSES):
                self._one_pass(active, first, second, steps)
            passes += PASSES
            going_on = []
            for model in active:
                accuracy = float((self.predict(self.weights[model], self.dev[model]) == self.labels[self.dev[model]].numpy()).mean())
                if accuracy > self.best[model]:
                    self.best[model], kept[model] = accuracy, self.weights[model]
                else:
                    misses[model] += 1
                if misses[model] <= TENACITY:
                    going_on.append(model)
            active = np.asarray(going_on, dtype=int)
        self.weights = kept

    def predict(self, weights: Tensor, rows: Rows) -> np.ndarray:
        return (self.features[rows] @ weights[:-1] + weights[-1]).argmax(dim=1).numpy()

    def _one_pass(self, active: Rows, first: Tensor, second: Tensor, steps: Tensor) -> None:
        orders = [self.train[model][self.random[model].permutation(len(self.train[model]))] for model in active]
        longest = max(map(len, orders))
        padded = np.full((len(active), -(-longest // BATCH) * BATCH), -1)
        for place, order in enumerate(orders):
            padded[place, : len(order)] = order
        weights, decay = self.weights[active], self.decay[active]
        mean, square, step = first[active], second[active], steps[active]
        for start in range(0, longest, BATCH):
            rows = torch.from_numpy(padded[:, start : start + BATCH])
            real = (rows >= 0).float()
            has_rows = (real.sum(dim=1) > 0).float()[:, None, None]  # a fold of one row fewer may have a batch fewer
            inputs = self.features[rows.clamp(min=0)]  # (K, B, D)
            inputs = torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=2)
            errors = (inputs @ weights).softmax(dim=2) - F.one_hot(self.labels[rows.clamp(min=0)], weights.shape[2])
            errors = errors * (real / real.sum(dim=1, keepdim=True).clamp(min=1))[..., None]
            slope = inputs.transpose(1, 2) @ errors + decay * weights
            step += has_rows[:, 0, 0]
            mean = torch.where(has_rows > 0, mean + (1 - BETAS[0]) * (slope - mean), mean)
            square = torch.where(has_rows > 0, square + (1 - BETAS[1]) * (slope**2 - square), square)
            corrected = mean / (1 - BETAS[0] ** step)[:, None, None]
            spread = (square / (1 - BETAS[1] ** step)[:, None, None]).sqrt() + EPSILON
            weights = weights - has_rows * LEARNING_RATE * corrected / spread
        self.weights[active], first[active], second[active], steps[active] = weights, mean, square, step


def _grid(features: Tensor, labels: Tensor, rows: Rows, num_folds: int, seed: int) -> float:
    """The penalty of the best mean dev accuracy over folds of `rows`; the first of equals."""
    folds = list(StratifiedKFold(num_folds, shuffle=True, random_state=seed).split(rows, labels[rows].numpy()))
    train = [rows[fit] for _ in PENALTIES for fit, _ in folds]
    dev = [rows[held] for _ in PENALTIES for _, held in folds]
    models = Classifiers(features, labels, train=train, dev=dev, penalties=[penalty for penalty in PENALTIES for _ in folds], seed=seed)
    models.fit()
    means = np.round(100 * models.best.reshape(len(PENALTIES), num_folds).mean(axis=1), 2)
    return PENALTIES[int(np.argmax(means))]


def _final(features: Tensor, labels: Tensor, rows: Rows, penalty: float, test: Rows, seed: int) -> np.ndarray:
    """Predictions of a model that keeps 5 % of its training rows for early stopping."""
    order = np.random.RandomState(seed).permutation(len(rows))
    held = int(0.05 * len(rows))
    model = Classifiers(features, labels, train=[rows[order[held:]]], dev=[rows[order[:held]]], penalties=[penalty], seed=seed)
    model.random[0].permutation(len(rows))  # SentEval draws its passes from the generator that has drawn the held-out rows
    model.fit()
    return model.predict(model.weights[0], test)


def nested_accuracy(features: np.ndarray, labels: Sequence[int], *, num_folds: int = 10, seed: int = SEED) -> float:
    """Accuracy × 100 by nested folds (MR, CR, SUBJ, MPQA): the mean of the folds' rounded accuracies."""
    inputs, gold = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32)), torch.tensor(labels)
    accuracies = []
    for train, test in StratifiedKFold(num_folds, shuffle=True, random_state=seed).split(features, labels):
        penalty = _grid(inputs, gold, train, num_folds, seed)
        predicted = _final(inputs, gold, train, penalty, test, seed)
        accuracies.append(round(100 * float((predicted == gold[test].numpy()).mean()), 2))
    return float(np.mean(accuracies))


def split_accuracy(
    features: np.ndarray, labels: Sequence[int], *, train: Rows, test: Rows, dev: Rows | None = None, num_folds: int = 10, seed: int = SEED
) -> float:
    """Accuracy × 100 with fixed splits: the penalty by folds within train (TREC, MRPC), or on dev (SST2),
    where the very model of the grid is tested."""
    inputs, gold = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32)), torch.tensor(labels)
    if dev is None:
        predicted = _final(inputs, gold, train, _grid(inputs, gold, train, num_folds, seed), test, seed)
    else:
        models = Classifiers(inputs, gold, train=[train] * 4, dev=[dev] * 4, penalties=PENALTIES, seed=seed)
        models.fit()
        predicted = models.predict(models.weights[int(np.argmax(np.round(100 * models.best, 2)))], test)
    return 100 * float((predicted == gold[test].numpy()).mean())
