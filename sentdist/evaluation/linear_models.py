"""Train linear models on embeddings: many logistic regressions at once by SentEval's protocol, and probes of tags and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.classification import (
    PENALTIES,
    ClassificationScore,
    Fold,
    check_folds,
    checked_rows,
    classification_score,
    split_rows,
    stratified_folds,
)
from sentdist.evaluation.sts import checked_embeddings

# SentEval's settings in SimCSE's "test" mode: epochs per dev evaluation, tolerated evaluations without a gain, largest number of epochs.
BATCH, PASSES_A_LOOK, TENACITY, MAX_PASSES = 64, 4, 5, 200
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8  # torch's defaults of Adam (Kingma & Ba 2015, arXiv 1412.6980)
SEED = 1111


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModels:
    """K trained models; `dev_accuracies`: (K,) the best of each, from 0 to 1."""

    weights: NDArray[np.float32]  # (D + 1, V, K), the bias last
    classes: NDArray[np.str_]  # (V,)
    dev_accuracies: NDArray[np.float64]

    def predict(self, features_SD: NDArray[np.float32], model: int, rows: NDArray[np.int64]) -> NDArray[np.str_]:
        """Return the labels that one model predicts for some rows."""
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
    """Train K models, each on its own rows, until six dev evaluations bring no better accuracy; keep the best weights.

    All models go through the same shuffled rows and skip those that are not theirs, so a block of rows is multiplied once for all of
    them. A block has 64 rows of a model on average (SentEval: exactly 64); all else is as in SentEval, including early stopping.

    Args:
        train: rows of each model; `dev`: its dev rows; `penalties`: its λ.
        seed: of the first weights.
        random: shuffles the rows; None: a generator with the same seed.
    """
    classes, gold_S = np.unique(labels_S, return_inverse=True)
    inputs_SD = np.hstack([features_SD, np.ones((len(features_SD), 1), dtype=np.float32)])
    walk = _Walk(inputs_SD, len(classes), train, penalties, seed, random or np.random.RandomState(seed))
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
    """The models that are still training, and Adam's state."""

    def __init__(
        self,
        inputs_SD: NDArray[np.float32],
        num_classes: int,
        train: Sequence[NDArray[np.int64]],
        penalties: Sequence[float],
        seed: int,
        random: np.random.RandomState,
    ) -> None:
        """Start all models from the same weights: uniform within 1/√D, torch's default for a linear layer, as in SentEval."""
        width = inputs_SD.shape[1] - 1
        start = np.random.default_rng(seed).uniform(-1.0, 1.0, size=(width + 1, num_classes, 1)) / np.sqrt(width)
        self.weights = np.repeat(start.astype(np.float32), len(train), axis=2)
        self.mean, self.square = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self.own_SK, self.decay_K = _membership(train, len(inputs_SD)), np.asarray(penalties, dtype=np.float32)
        self.rows = np.flatnonzero(self.own_SK.any(axis=1))
        self.block = round(BATCH / float(self.own_SK.sum(axis=0).mean() / len(self.rows)))
        self.steps, self.random = 0, random

    def one_pass(self, inputs_SD: NDArray[np.float32], gold_S: NDArray[np.int64]) -> None:
        order = self.random.permutation(self.rows)
        for first in range(0, len(order), self.block):
            rows = order[first : first + self.block]
            self._step(inputs_SD[rows], gold_S[rows], self.own_SK[rows])

    def keep(self, going_on_K: NDArray[np.bool_]) -> None:
        """Drop the other models."""
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
    """(K,) accuracy of each model on its dev rows, in tiles of rows."""
    right_K, rows = np.zeros(weights.shape[2]), np.flatnonzero(is_dev_SK.any(axis=1))
    for first in range(0, len(rows), 1024):
        some = rows[first : first + 1024]
        scores = (inputs_SD[some] @ weights.reshape(len(weights), -1)).reshape(len(some), *weights.shape[1:])
        right_K += ((scores.argmax(axis=1) == gold_S[some, None]) & is_dev_SK[some]).sum(axis=0)
    return right_K / is_dev_SK.sum(axis=0)


DEV_FRACTION = 0.05  # of the training rows of a final model, for early stopping


def senteval_cross_validated(
    features_SD: ArrayLike, labels: Sequence[str], *, num_folds: int = 10, seed: int = SEED, where: str
) -> ClassificationScore:
    """Test every row once, in stratified folds; λ is chosen by inner folds of each training part (SentEval for MR, CR, SUBJ, MPQA).

    Args:
        seed: of folds, first weights and shuffles; SentEval's by default.

    Raises:
        DataError: as `cross_validated`.
    """
    features, gold = checked_rows(features_SD, labels, where)
    check_folds(gold, num_folds, nested=True, where=where)
    outer = stratified_folds(gold, np.arange(len(gold)), num_folds, seed)
    inner = [pair for train, _ in outer for pair in stratified_folds(gold, train, num_folds, seed)]
    penalties = _best(_mean_accuracies(features, gold, inner, num_folds, seed))
    fit_rows, dev_rows = zip(*(_with_dev(train, np.random.RandomState(seed)) for train, _ in outer), strict=True)
    models = trained_side_by_side(features, gold, train=fit_rows, dev=dev_rows, penalties=penalties, seed=seed)
    predicted = np.empty_like(gold)
    for number, (_, test) in enumerate(outer):
        predicted[test] = models.predict(features, number, test)
    return classification_score(gold, predicted, np.arange(len(gold)), penalties)


def senteval_split(
    features_SD: ArrayLike,
    labels: Sequence[str],
    *,
    train: ArrayLike,
    test: ArrayLike,
    dev: ArrayLike | None = None,
    num_folds: int = 10,
    seed: int = SEED,
    where: str,
) -> ClassificationScore:
    """Fit on the rows `train`, test on the rows `test`; λ is chosen on `dev` (SentEval for SST2), or by folds within train (TREC, MRPC).

    Args:
        seed: as in `senteval_cross_validated`.

    Raises:
        DataError: as `split_classified`.
    """
    features, gold = checked_rows(features_SD, labels, where)
    parts = split_rows(gold, train=train, test=test, dev=dev, where=where)
    fit, held = parts["train"], parts["test"]
    if dev is None:
        check_folds(gold[fit], num_folds, nested=False, where=where)
        penalties = _best(_mean_accuracies(features, gold, stratified_folds(gold, fit, num_folds, seed), num_folds, seed))
        random = np.random.RandomState(seed)
        train_rows, dev_rows = _with_dev(fit, random)
        models = trained_side_by_side(features, gold, train=[train_rows], dev=[dev_rows], penalties=penalties, seed=seed, random=random)
        best = 0
    else:
        models = _of_penalties(features, gold, [(fit, parts["dev"])], seed)
        best = int(np.argmax(np.round(100 * models.dev_accuracies, 2)))
        penalties = [PENALTIES[best]]
    return classification_score(gold[held], models.predict(features, best, held), held, penalties)


def senteval_dev(
    features_SD: ArrayLike,
    labels: Sequence[str],
    *,
    train: ArrayLike | None = None,
    dev: ArrayLike | None = None,
    num_folds: int = 5,
    seed: int = SEED,
    where: str,
) -> float:
    """Return the dev accuracy × 100 of the penalty that SentEval chooses.

    RSE and SimCSE choose checkpoints for transfer tasks by its mean over tasks (5 folds in training, 10 at test). The classifier is that
    of the tests (Adam), not the faster one that SentEval uses for dev.

    Args:
        train: rows to fit; None: inner folds of each training part of folds over all rows, averaged (MR, CR, SUBJ, MPQA).
        dev: rows to score (SST2); None: folds within train (TREC, MRPC).

    Raises:
        DataError: as `senteval_cross_validated`.
    """
    features, gold = checked_rows(features_SD, labels, where)
    fit = np.arange(len(gold)) if train is None else np.asarray(train, dtype=np.int64)
    if dev is not None:
        models = _of_penalties(features, gold, [(fit, np.asarray(dev, dtype=np.int64))], seed)
        return float(np.round(100 * models.dev_accuracies, 2).max())
    check_folds(gold[fit], num_folds, nested=train is None, where=where)
    folds = stratified_folds(gold, fit, num_folds, seed)
    inner = folds if train is not None else [pair for rows, _ in folds for pair in stratified_folds(gold, rows, num_folds, seed)]
    return float(np.mean(_mean_accuracies(features, gold, inner, num_folds, seed).max(axis=1)))


def _best(accuracies_FP: NDArray[np.float64]) -> list[float]:
    """The penalty with the best accuracy of each row; the weakest of equal ones, as in SentEval."""
    return [PENALTIES[int(np.argmax(row))] for row in accuracies_FP]


def _of_penalties(features_SD: NDArray[np.float32], gold_S: NDArray[np.str_], folds: Sequence[Fold], seed: int) -> LinearModels:
    """For each fold a model of each penalty."""
    return trained_side_by_side(
        features_SD, gold_S, train=[train for train, _ in folds for _ in PENALTIES], dev=[held for _, held in folds for _ in PENALTIES],
        penalties=PENALTIES * len(folds), seed=seed,
    )  # fmt: skip


def _mean_accuracies(
    features_SD: NDArray[np.float32], gold_S: NDArray[np.str_], folds: list[Fold], num_folds: int, seed: int
) -> NDArray[np.float64]:
    """(F, P) for each run of `num_folds` folds and each penalty the mean dev accuracy × 100, to two decimals, as SentEval compares them."""
    models = _of_penalties(features_SD, gold_S, folds, seed)
    means = models.dev_accuracies.reshape(-1, num_folds, len(PENALTIES)).mean(axis=1)
    return np.asarray(np.round(100 * means, 2), dtype=np.float64)


def _with_dev(rows: NDArray[np.int64], random: np.random.RandomState) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to fit, and rows held out for early stopping."""
    order = random.permutation(rows)
    count = max(1, int(DEV_FRACTION * len(rows)))
    return order[count:], order[:count]


TEST_FRACTION = 0.25
RIDGE = 1.0  # penalty on standardized channels, in units of rows
LOGISTIC_C = 1.0


@dataclass(frozen=True, kw_only=True)
class DistributionProbe:
    """How well a logistic model predicts a distribution over classes, on held-out sentences.

    Args:
        cross_entropy: −Σ t log ŷ (nats, mean).
        floor: the same for ŷ = the mean distribution of the training sentences.
        best: the same for ŷ = t.
    """

    cross_entropy: float
    floor: float
    best: float

    @property
    def explained(self) -> float:
        """Share of the Kullback-Leibler divergence that the channels explain: 1 all, 0 nothing, below 0 worse than the mean."""
        return (self.floor - self.cross_entropy) / (self.floor - self.best) if self.floor > self.best else 0.0


def probe_distribution(channels: ArrayLike, shares: ArrayLike, *, seed: int = 0) -> DistributionProbe:
    """Fit a multinomial logistic model (L2, C = 1) to soft labels on three quarters of the S sentences, score it on the others.

    A soft label becomes weighted hard labels, which gives the same loss.

    Args:
        channels: (S, D), standardized here.
        shares: (S, V) rows that sum to 1; rows of zeros are left out.
        seed: of the split; nothing else is random.

    Raises:
        DataError: too few sentences or classes.
    """
    channels_SD, shares_SV = checked_embeddings(channels, where="probe of tags"), np.asarray(shares, dtype=np.float64)
    kept = shares_SV.sum(axis=1) > 0
    channels_SD, shares_SV = channels_SD[kept], shares_SV[kept] / shares_SV[kept].sum(axis=1, keepdims=True)
    train, test = _split(len(channels_SD), seed, "probe of tags")
    inputs_SD = _standardized(channels_SD, train)
    used_V = np.flatnonzero(shares_SV[train].sum(axis=0) > 0)
    if len(used_V) < 2:
        raise _too_few("probe of tags", f"{len(used_V)} classes in {len(train)} sentences", "at least 2 classes")
    rows, classes = np.nonzero(shares_SV[train])
    from sklearn.linear_model import LogisticRegression  # scikit-learn takes a second to import

    model = LogisticRegression(C=LOGISTIC_C, max_iter=500, tol=1e-4)
    model.fit(inputs_SD[train][rows], classes, sample_weight=shares_SV[train][rows, classes])
    logs_SV = np.full((len(test), shares_SV.shape[1]), np.log(np.finfo(np.float64).tiny))
    logs_SV[:, model.classes_] = model.predict_log_proba(inputs_SD[test])
    # A class unseen in training has no probability in either model; it is left out of all three numbers.
    truth_SV = shares_SV[test][:, used_V]
    mean_V = shares_SV[train][:, used_V].mean(axis=0)
    return DistributionProbe(
        cross_entropy=_cross_entropy(truth_SV, logs_SV[:, used_V]), floor=_cross_entropy(truth_SV, np.log(mean_V)),
        best=_cross_entropy(truth_SV, np.log(np.where(truth_SV > 0, truth_SV, 1.0))),
    )  # fmt: skip


def probe_regression(channels: ArrayLike, targets: ArrayLike, *, seed: int = 0) -> float:
    """Fit ridge regression from channels (S, D), standardized here, to targets (S, V) on three quarters of the rows; return R² on the rest.

    In closed form, so thousands of targets cost one product. Only the split is random, by `seed`. R² is 1 − Σ errors² / Σ deviations²
    from the training mean, over all targets; 0: as good as the mean.

    Raises:
        DataError: too few sentences, or targets without variance.
    """
    channels_SD, targets_SV = checked_embeddings(channels, where="probe of words"), np.asarray(targets, dtype=np.float64)
    train, test = _split(len(channels_SD), seed, "probe of words")
    inputs_SD = _standardized(channels_SD, train)
    mean_V = targets_SV[train].mean(axis=0)
    gram_DD = inputs_SD[train].T @ inputs_SD[train] + RIDGE * np.eye(inputs_SD.shape[1])
    weights_DV = np.linalg.solve(gram_DD, inputs_SD[train].T @ (targets_SV[train] - mean_V))
    deviations_SV = targets_SV[test] - mean_V
    total = float(np.sum(deviations_SV**2))
    if total == 0:
        raise _too_few("probe of words", "targets that never vary", "targets that differ from sentence to sentence")
    return 1 - float(np.sum((deviations_SV - inputs_SD[test] @ weights_DV) ** 2)) / total


def _split(num_sentences: int, seed: int, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    num_test = round(num_sentences * TEST_FRACTION)
    if num_test < 1 or num_sentences - num_test < 2:
        raise _too_few(where, f"{num_sentences} sentences", "at least 3")
    order = np.random.default_rng(seed).permutation(num_sentences)
    return order[num_test:], order[:num_test]


def _standardized(channels_SD: NDArray[np.float64], train: NDArray[np.int64]) -> NDArray[np.float64]:
    mean_D, deviation_D = channels_SD[train].mean(axis=0), channels_SD[train].std(axis=0)
    return (channels_SD - mean_D) / np.where(deviation_D > 0, deviation_D, 1.0)


def _cross_entropy(truth_SV: NDArray[np.float64], logs_SV: NDArray[np.float64]) -> float:
    return float(-(truth_SV * logs_SV).sum(axis=1).mean())


def _too_few(where: str, found: str, expected: str) -> DataError:
    return DataError(where=where, found=found, expected=expected, remedy="Probe more sentences of the corpus.")
