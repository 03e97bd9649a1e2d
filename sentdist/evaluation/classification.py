"""Score frozen embeddings against labels: linear classifiers fitted to convergence, and clusters of k-means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError, brief
from sentdist.evaluation.sts import checked_embeddings, normalized

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression


# λ of the penalty λ/2 ‖w‖² beside the mean cross-entropy (nats):
# the grid of SentEval's torch classifier (Conneau & Kiela 2018, arXiv 1803.05449).
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
FOLDS_SEED = 1111  # SentEval's
MAX_ITERATIONS = 1000
Fold = tuple[NDArray[np.int64], NDArray[np.int64]]  # training rows, held-out rows


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassificationScore:
    """The result on T tested rows, in ascending order.

    Args:
        accuracy: × 100, over all tested rows (SentEval averages rounded accuracies of folds, which differs by less than 0.01).
        f1: × 100, of the later of two labels in sorted order; None for more than two labels.
        penalties: λ chosen in each fold; one value for fixed splits.
    """

    accuracy: float
    f1: float | None
    rows: NDArray[np.int64]  # (T,)
    gold: NDArray[np.str_]  # (T,)
    predicted: NDArray[np.str_]  # (T,)
    penalties: tuple[float, ...]

    def items(self) -> dict[str, NDArray[np.int64] | NDArray[np.str_] | NDArray[np.float64]]:
        """Return the columns to keep per tested row; `accuracy` is 100 or 0, so its mean is the score."""
        correct = np.where(self.gold == self.predicted, 100.0, 0.0)
        return {"row": self.rows, "label": self.gold, "predicted": self.predicted, "accuracy": correct}


def pair_features(first_PD: ArrayLike, second_PD: ArrayLike) -> NDArray[np.float32]:
    """Return (P, 2D) features |u − v| and u ∗ v of P pairs, which do not depend on the order in a pair."""
    first, second = np.asarray(first_PD, dtype=np.float32), np.asarray(second_PD, dtype=np.float32)
    return np.hstack([np.abs(first - second), first * second])


def cross_validated(features_SD: ArrayLike, labels: Sequence[str], *, num_folds: int = 10, where: str) -> ClassificationScore:
    """Test every row once, in stratified folds; λ is chosen by inner folds of each training part.

    Raises:
        DataError: embeddings that are not finite, a label with too few rows for the folds.
    """
    features, gold = checked_rows(features_SD, labels, where)
    check_folds(gold, num_folds, nested=True, where=where)
    predicted, penalties = np.empty_like(gold), []
    for train, test in stratified_folds(gold, np.arange(len(gold)), num_folds):
        penalty = _best_penalty(features, gold, train, num_folds)
        predicted[test] = _model(len(train), penalty).fit(features[train], gold[train]).predict(features[test])
        penalties.append(penalty)
    return classification_score(gold, predicted, np.arange(len(gold)), penalties)


def split_classified(
    features_SD: ArrayLike,
    labels: Sequence[str],
    *,
    train: ArrayLike,
    test: ArrayLike,
    dev: ArrayLike | None = None,
    num_folds: int = 10,
    where: str,
) -> ClassificationScore:
    """Fit on the rows `train`, test on the rows `test`; λ is chosen on `dev`, or by folds within train.

    Raises:
        DataError: as `cross_validated`; no row in one of the parts; a tested label that training rows do not have.
    """
    features, gold = checked_rows(features_SD, labels, where)
    parts = split_rows(gold, train=train, test=test, dev=dev, where=where)
    fit, held = parts["train"], parts["test"]
    if dev is None:
        check_folds(gold[fit], num_folds, nested=False, where=where)
        penalty = _best_penalty(features, gold, fit, num_folds)
        model = _model(len(fit), penalty).fit(features[fit], gold[fit])
    else:
        path = list(_path(features[fit], gold[fit]))[::-1]  # the weakest of equal ones, as in `_best_penalty`
        accuracies = [float(np.mean(one.predict(features[parts["dev"]]) == gold[parts["dev"]])) for _, one in path]
        penalty, model = path[int(np.argmax(np.round(100 * np.asarray(accuracies), 2)))]
    return classification_score(gold[held], model.predict(features[held]), held, [penalty])


def split_rows(
    gold_S: NDArray[np.str_], *, train: ArrayLike, test: ArrayLike, dev: ArrayLike | None, where: str
) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each part; raise DataError for an empty part, one training label, or a test label without training rows."""
    parts = {name: np.asarray(rows, dtype=np.int64) for name, rows in (("train", train), ("test", test), ("dev", dev)) if rows is not None}
    for name, rows in parts.items():
        if not len(rows):
            raise DataError(where=where, found=f"no rows in {name}", expected="rows to fit and to test", remedy="Choose other splits.")
    if len(known := set(gold_S[parts["train"]].tolist())) < 2:
        raise DataError(
            where=where, found=f"one label, {brief(known.pop())}, in all rows of train", expected="two or more",
            remedy="A classifier needs classes to distinguish.",
        )  # fmt: skip
    unseen = sorted(set(gold_S[parts["test"]]) - set(gold_S[parts["train"]]))
    if unseen:
        raise DataError(
            where=where, found=f"test rows labelled {str(unseen[0])!r}", expected="labels that training rows have",
            remedy="Correct the splits.",
        )  # fmt: skip
    return parts


def _best_penalty(features_SD: NDArray[np.float32], gold_S: NDArray[np.str_], rows: NDArray[np.int64], num_folds: int) -> float:
    """The penalty with the best mean accuracy over folds of some rows; the weakest of equal ones, as in SentEval."""
    accuracies = np.zeros(len(PENALTIES))
    for train, test in stratified_folds(gold_S, rows, num_folds):
        for place, (_, model) in enumerate(_path(features_SD[train], gold_S[train])):
            accuracies[place] += np.mean(model.predict(features_SD[test]) == gold_S[test]) / num_folds
    return PENALTIES[int(np.argmax(np.round(100 * accuracies[::-1], 2)))]


def _path(features_SD: NDArray[np.float32], gold_S: NDArray[np.str_]) -> Iterator[tuple[float, LogisticRegression]]:
    """A model per penalty from strongest to weakest, each started from the previous one, which halves the iterations."""
    start: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    for penalty in reversed(PENALTIES):
        model = _model(len(gold_S), penalty, warm_start=True)
        if start is not None:
            model.coef_, model.intercept_ = start[0].copy(), start[1].copy()
        model.fit(features_SD, gold_S)
        start = (model.coef_, model.intercept_)
        yield penalty, model


def _model(num_rows: int, penalty: float, *, warm_start: bool = False) -> LogisticRegression:
    """Mean cross-entropy + λ/2 ‖w‖² in scikit-learn's terms; minimized to convergence, without the early
    stopping, seeds and epochs of SentEval's Adam."""
    from sklearn.linear_model import LogisticRegression  # scikit-learn takes a second to import

    return LogisticRegression(C=1.0 / (num_rows * penalty), max_iter=MAX_ITERATIONS, warm_start=warm_start)


def stratified_folds(gold_S: NDArray[np.str_], rows: NDArray[np.int64], num_folds: int, seed: int = FOLDS_SEED) -> list[Fold]:
    """Return (training rows, held-out rows) of each fold of some rows, stratified."""
    from sklearn.model_selection import StratifiedKFold

    splitter = StratifiedKFold(n_splits=num_folds, shuffle=True, random_state=seed)
    return [(rows[train], rows[held]) for train, held in splitter.split(rows, gold_S[rows])]


def classification_score(
    gold_T: NDArray[np.str_], predicted_T: NDArray[np.str_], rows_T: NDArray[np.int64], penalties: list[float]
) -> ClassificationScore:
    """Return accuracy and, for two labels, F1 of the greater one (both × 100) over T tested rows, sorted by row."""
    from sklearn.metrics import f1_score

    names = np.unique(gold_T)
    is_binary = not set(predicted_T.tolist()) - set(names.tolist())  # else a third label was trained, and predicted
    order = np.argsort(rows_T, kind="stable")
    return ClassificationScore(
        accuracy=100.0 * float(np.mean(gold_T == predicted_T)),
        f1=100.0 * float(f1_score(gold_T, predicted_T, pos_label=names[-1])) if len(names) == 2 and is_binary else None, rows=rows_T[order],
        gold=gold_T[order], predicted=predicted_T[order], penalties=tuple(penalties),
    )  # fmt: skip


def checked_rows(features_SD: ArrayLike, labels: Sequence[str], where: str) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    """Return features and labels as arrays; raise DataError for embeddings that are not finite."""
    return checked_embeddings(features_SD, where=where).astype(np.float32), np.asarray(labels, dtype=np.str_)


def check_folds(gold_S: NDArray[np.str_], num_folds: int, *, nested: bool, where: str) -> None:
    """Raise DataError unless every fold, and with `nested` every inner fold, can have every label."""
    names, counts = np.unique(gold_S, return_counts=True)
    rarest = int(np.argmin(counts))
    most = int(counts[rarest])
    left = most - -(-most // num_folds) if nested else most
    if left < num_folds:
        raise DataError(
            where=where,
            found=f"{most} of {len(gold_S)} rows labelled {str(names[rarest])!r}",
            expected=f"{num_folds + (2 if nested else 0)} rows of each label or more, for {num_folds} folds",
            remedy="Drop or join rare labels, give more rows, or give fixed splits train, dev and test.",
        )


DECIMALS = 6  # of a unit vector: below that float32 embeddings hold rounding only


def score_clusters(
    embeddings_SD: ArrayLike, labels: Sequence[str], *, num_runs: int = 5, where: str
) -> tuple[float | None, NDArray[np.int64]]:
    """Cluster S normalized embeddings into as many clusters as labels, by k-means (Lloyd, k-means++ starts of seeds 0, 1, …).

    Returns:
        The V-measure × 100, harmonic mean of homogeneity and completeness (Rosenberg & Hirschberg 2007), mean over runs; None if there are
        fewer different embeddings than labels. And the (S,) clusters of the first run.

    Raises:
        DataError: embeddings that are not finite.
    """
    unit_SD = normalized(checked_embeddings(embeddings_SD, where=where))
    num_labels = len(set(labels))
    if len(np.unique(np.round(unit_SD, DECIMALS), axis=0)) < num_labels:
        return None, np.zeros(len(unit_SD), dtype=np.int64)
    from sklearn.cluster import KMeans  # scikit-learn takes a second to import
    from sklearn.metrics import v_measure_score

    runs = [KMeans(n_clusters=num_labels, n_init=1, random_state=seed).fit_predict(unit_SD) for seed in range(num_runs)]
    return float(np.mean([100.0 * v_measure_score(list(labels), clusters) for clusters in runs])), runs[0].astype(np.int64)
