"""What can be read out of some channels of an embedding by a linear model: whether adversaries really removed it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.metrics import checked_embeddings

TEST_FRACTION = 0.25
RIDGE = 1.0  # penalty on standardized channels, in units of rows
LOGISTIC_C = 1.0


@dataclass(frozen=True, kw_only=True)
class DistributionProbe:
    """How well a logistic model predicts a distribution over classes, on held-out sentences.

    cross_entropy: −Σ t log ŷ; floor: the same for ŷ = the mean distribution of the training sentences;
    best: that for ŷ = t (all nats, means).
    explained: (floor − cross_entropy) / (floor − best), the share of the Kullback-Leibler divergence that the channels account for:
    1 is all, 0 as good as knowing nothing, below 0 worse.
    """

    cross_entropy: float
    floor: float
    best: float
    num_test: int

    @property
    def explained(self) -> float:
        return (self.floor - self.cross_entropy) / (self.floor - self.best) if self.floor > self.best else 0.0


@dataclass(frozen=True, kw_only=True)
class RegressionProbe:
    """How well ridge regression predicts numbers, on held-out sentences:
    1 − Σ errors² / Σ deviations² from the training mean, over all targets.

    r2: 1 is all, 0 as good as the mean, below 0 worse.
    """

    r2: float
    num_test: int


def probe_distribution(channels: ArrayLike, shares: ArrayLike, *, seed: int = 0) -> DistributionProbe:
    """Fit a multinomial logistic model (L2, C = 1) to soft labels on three quarters of the S sentences, score it on the others.

    channels: (S, D), standardized here. shares: (S, V) rows that sum to 1; rows of zeros are left out.
    The split follows `seed`; nothing else is random. A soft label is as many weighted hard ones, which gives the same loss.
    DataError for too few sentences or classes.
    """
    channels_SD, shares_SV = _checked(channels, shares, "probe of tags")
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
        cross_entropy=_cross_entropy(truth_SV, logs_SV[:, used_V]),
        floor=_cross_entropy(truth_SV, np.log(mean_V)),
        best=_cross_entropy(truth_SV, np.log(np.where(truth_SV > 0, truth_SV, 1.0))),
        num_test=len(test),
    )


def probe_regression(channels: ArrayLike, targets: ArrayLike, *, seed: int = 0) -> RegressionProbe:
    """Fit ridge regression from channels (S, D), standardized here, to (S, V) targets on three quarters of the sentences,
    score it on the others.

    In closed form, so thousands of targets cost one product. The split follows `seed`; nothing else is random.
    DataError for too few sentences or targets without variance.
    """
    channels_SD, targets_SV = _checked(channels, targets, "probe of words")
    train, test = _split(len(channels_SD), seed, "probe of words")
    inputs_SD = _standardized(channels_SD, train)
    mean_V = targets_SV[train].mean(axis=0)
    gram_DD = inputs_SD[train].T @ inputs_SD[train] + RIDGE * np.eye(inputs_SD.shape[1])
    weights_DV = np.linalg.solve(gram_DD, inputs_SD[train].T @ (targets_SV[train] - mean_V))
    deviations_SV = targets_SV[test] - mean_V
    total = float(np.sum(deviations_SV**2))
    if total == 0:
        raise _too_few("probe of words", "targets that never vary", "targets that differ from sentence to sentence")
    return RegressionProbe(r2=1 - float(np.sum((deviations_SV - inputs_SD[test] @ weights_DV) ** 2)) / total, num_test=len(test))


def _checked(channels: ArrayLike, targets: ArrayLike, where: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    channels_SD = checked_embeddings(channels, where=where)
    targets_SV = np.asarray(targets, dtype=np.float64)
    if targets_SV.ndim != 2 or len(targets_SV) != len(channels_SD):
        raise _too_few(
            where, f"{len(channels_SD)} embeddings and targets of shape {targets_SV.shape}", "one row of targets for each embedding"
        )
    return channels_SD, targets_SV


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
