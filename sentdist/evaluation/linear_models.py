"""Many logistic regressions over rows of one matrix, trained side by side as SentEval trains each: Adam, early stopping, weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# SentEval's settings in SimCSE's "test" mode: passes between looks at the dev rows, looks without a gain that are forgiven, most passes.
BATCH, PASSES_A_LOOK, TENACITY, MAX_PASSES = 64, 4, 5, 200
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8  # torch's defaults of Adam (Kingma & Ba 2015, arXiv 1412.6980)
SEED = 1111


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModels:
    """K trained models; dev_accuracies: (K,) the best that each had, from 0 to 1."""

    weights: NDArray[np.float32]  # (D + 1, V, K), the bias last
    classes: NDArray[np.str_]  # (V,)
    dev_accuracies: NDArray[np.float64]

    def predict(self, features_SD: NDArray[np.float32], model: int, rows: NDArray[np.int64]) -> NDArray[np.str_]:
        """The labels that one model gives to some rows."""
        scores = features_SD[rows] @ self.weights[:-1, :, model] + self.weights[-1, :, model]
        return self.classes[scores.argmax(axis=1)]


def trained_side_by_side(
    features_SD: NDArray[np.float32],
    labels_S: NDArray[np.str_],
    *,
    train: Sequence[NDArray[np.int64]],
    dev: Sequence[NDArray[np.int64]],
    penalties: Sequence[float],
    seed: int = SEED,
    random: np.random.RandomState | None = None,
) -> LinearModels:
    """Train K models, each on rows of its own, until six looks at its dev rows brought no better accuracy; its best weights are kept.

    All models walk through the same shuffled rows and pass over those that are not theirs,
    so a block of rows is multiplied once for all of them. A block is as long as it takes for a model to find 64 rows of its own in it on
    average (SentEval: 64 exactly); all else is SentEval's, early stopping too. seed: of the first weights. random: what shuffles the rows;
    None begins with the seed, too.
    """
    classes, gold_S = np.unique(labels_S, return_inverse=True)
    inputs_SD = np.hstack([features_SD, np.ones((len(features_SD), 1), dtype=np.float32)])
    walk = _Walk.begin(inputs_SD, gold_S, len(classes), train, penalties, seed, random or np.random.RandomState(seed))
    is_dev_SK = _membership(dev, len(features_SD))
    count = len(train)
    best_K, kept, misses_K = np.full(count, -1.0), np.zeros_like(walk.weights), np.zeros(count, dtype=np.int64)
    active_K, passes = np.arange(count), 0
    while len(active_K) and passes <= MAX_PASSES:
        for _ in range(PASSES_A_LOOK):
            walk.one_pass(inputs_SD, gold_S)
        passes += PASSES_A_LOOK
        accuracies = _accuracies(inputs_SD, gold_S, walk.weights, is_dev_SK[:, active_K])
        is_better = accuracies > best_K[active_K]
        best_K[active_K[is_better]] = accuracies[is_better]
        kept[:, :, active_K[is_better]] = walk.weights[:, :, is_better]
        misses_K[active_K[~is_better]] += 1
        going_on = misses_K[active_K] <= TENACITY
        if not going_on.all():
            walk.keep(going_on)
            active_K = active_K[going_on]
    return LinearModels(weights=kept, classes=classes, dev_accuracies=best_K)


class _Walk:
    """The models that still train, and Adam's state."""

    def __init__(
        self,
        weights: NDArray[np.float32],
        own_SK: NDArray[np.bool_],
        decay_K: NDArray[np.float32],
        block: int,
        random: np.random.RandomState,
    ) -> None:
        self.weights, self.own_SK, self.decay_K, self.block = weights, own_SK, decay_K, block
        self.mean, self.square = np.zeros_like(weights), np.zeros_like(weights)
        self.rows = np.flatnonzero(own_SK.any(axis=1))
        self.steps = 0
        self.random = random

    @classmethod
    def begin(
        cls,
        inputs_SD: NDArray[np.float32],
        gold_S: NDArray[np.int64],
        num_classes: int,
        train: Sequence[NDArray[np.int64]],
        penalties: Sequence[float],
        seed: int,
        random: np.random.RandomState,
    ) -> _Walk:
        """All models from the same weights, as SentEval's: uniform within 1/√D, torch's default of a linear layer."""
        width = inputs_SD.shape[1] - 1
        start = np.random.default_rng(seed).uniform(-1.0, 1.0, size=(width + 1, num_classes, 1)) / np.sqrt(width)
        own_SK = _membership(train, len(inputs_SD))
        share = own_SK.sum(axis=0).mean() / own_SK.any(axis=1).sum()
        weights = np.repeat(start.astype(np.float32), len(train), axis=2)
        return cls(weights, own_SK, np.asarray(penalties, dtype=np.float32), round(BATCH / float(share)), random)

    def one_pass(self, inputs_SD: NDArray[np.float32], gold_S: NDArray[np.int64]) -> None:
        order = self.random.permutation(self.rows)
        for first in range(0, len(order), self.block):
            rows = order[first : first + self.block]
            self._step(inputs_SD[rows], gold_S[rows], self.own_SK[rows])

    def keep(self, going_on_K: NDArray[np.bool_]) -> None:
        """Let the other models rest."""
        self.weights, self.mean, self.square = (
            np.ascontiguousarray(one[:, :, going_on_K]) for one in (self.weights, self.mean, self.square)
        )
        self.own_SK, self.decay_K = self.own_SK[:, going_on_K], self.decay_K[going_on_K]

    def _step(self, inputs_BD: NDArray[np.float32], gold_B: NDArray[np.int64], own_BK: NDArray[np.bool_]) -> None:
        """One step of Adam on every model's mean cross-entropy over its own rows of the block, plus λ/2 ‖w‖²."""
        width, num_classes, num_models = self.weights.shape
        errors = (inputs_BD @ self.weights.reshape(width, -1)).reshape(len(gold_B), num_classes, num_models)
        errors -= errors.max(axis=1, keepdims=True)
        np.exp(errors, out=errors)
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(len(gold_B)), gold_B] -= 1.0
        errors *= (own_BK / np.maximum(own_BK.sum(axis=0), 1)).astype(np.float32)[:, None, :]
        slope = (inputs_BD.T @ errors.reshape(len(gold_B), -1)).reshape(self.weights.shape)
        slope += self.decay_K * self.weights
        self.steps += 1
        self.mean += (1.0 - BETA1) * (slope - self.mean)
        np.square(slope, out=slope)
        slope -= self.square
        slope *= 1.0 - BETA2
        self.square += slope
        spread = np.sqrt(self.square, out=slope)
        spread *= 1.0 / np.sqrt(1.0 - BETA2**self.steps)
        spread += EPSILON
        self.weights -= (LEARNING_RATE / (1.0 - BETA1**self.steps)) * (self.mean / spread)


def _membership(parts: Sequence[NDArray[np.int64]], num_rows: int) -> NDArray[np.bool_]:
    """(S, K) whether row s belongs to part k."""
    belongs = np.zeros((num_rows, len(parts)), dtype=np.bool_)
    for number, rows in enumerate(parts):
        belongs[rows, number] = True
    return belongs


def _accuracies(
    inputs_SD: NDArray[np.float32], gold_S: NDArray[np.int64], weights: NDArray[np.float32], is_dev_SK: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """(K,) accuracy of each model on its dev rows, in tiles of rows that some model looks at."""
    right_K, rows = np.zeros(weights.shape[2]), np.flatnonzero(is_dev_SK.any(axis=1))
    for first in range(0, len(rows), 1024):
        some = rows[first : first + 1024]
        scores = (inputs_SD[some] @ weights.reshape(len(weights), -1)).reshape(len(some), *weights.shape[1:])
        right_K += ((scores.argmax(axis=1) == gold_S[some, None]) & is_dev_SK[some]).sum(axis=0)
    return right_K / is_dev_SK.sum(axis=0)
