"""SentEval's transfer protocol: how well its classifier, with its early stopping, reads labels out of frozen embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.evaluation.classification import PENALTIES, ClassificationScore, check_folds, checked_rows, classification_score, split_rows
from sentdist.evaluation.linear_models import SEED, trained_side_by_side

DEV_FRACTION = 0.05  # of the training rows of a final model, which say when to stop


def senteval_cross_validated(
    features_SD: ArrayLike, labels: Sequence[str], *, num_folds: int = 10, seed: int = SEED, where: str = "classification"
) -> ClassificationScore:
    """Test every row once, in stratified folds; λ is chosen within each training part by folds of its own (SentEval's for MR, CR, SUBJ,
    MPQA).

    seed: of folds, first weights and shuffles; SentEval's own if left out.

    Raises:
        DataError: embeddings that are not finite, fewer than two labels, a label with too few rows for the folds.
    """
    features, gold = checked_rows(features_SD, labels, where)
    check_folds(gold, num_folds, nested=True, where=where)
    outer = _folds(gold, np.arange(len(gold)), num_folds, seed)
    inner = [pair for train, _ in outer for pair in _folds(gold, train, num_folds, seed)]
    penalties = _best_penalties(features, gold, inner, num_folds, seed)
    finals = [_with_dev(train, np.random.RandomState(seed)) for train, _ in outer]
    fit_rows, dev_rows = zip(*finals, strict=True)
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
    where: str = "classification",
) -> ClassificationScore:
    """Fit on the rows `train`, test on the rows `test`; λ is chosen on `dev` (SentEval's for SST2), or by folds within train (TREC, MRPC).

    seed: as in `senteval_cross_validated`.

    Raises:
        DataError: as `split_classified`.
    """
    features, gold = checked_rows(features_SD, labels, where)
    parts = split_rows(gold, train=train, test=test, dev=dev, where=where)
    fit, held = parts["train"], parts["test"]
    if dev is None:
        check_folds(gold[fit], num_folds, nested=False, where=where)
        penalties = _best_penalties(features, gold, _folds(gold, fit, num_folds, seed), num_folds, seed)
        random = np.random.RandomState(seed)
        train_rows, dev_rows = _with_dev(fit, random)
        models = trained_side_by_side(features, gold, train=[train_rows], dev=[dev_rows], penalties=penalties, seed=seed, random=random)
        best = 0
    else:
        count = len(PENALTIES)
        models = trained_side_by_side(features, gold, train=[fit] * count, dev=[parts["dev"]] * count, penalties=PENALTIES, seed=seed)
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
    where: str = "classification",
) -> float:
    """The accuracy × 100 of the penalty that SentEval chooses, on what chooses it: RSE's and SimCSE's checkpoints for transfer tasks are
    those of its mean over tasks (5 folds while training, 10 at test).

    train None: folds within each training part of folds over all rows, averaged (MR, CR, SUBJ, MPQA); dev None: folds within train
    (TREC, MRPC); both: fitted on train, seen on dev (SST2). The classifier is that of the tests (Adam), not the faster one that SentEval
    takes for dev.

    Raises:
        DataError: as `senteval_cross_validated`.
    """
    features, gold = checked_rows(features_SD, labels, where)
    if train is not None and dev is not None:
        fit, held = np.asarray(train, dtype=np.int64), np.asarray(dev, dtype=np.int64)
        count = len(PENALTIES)
        models = trained_side_by_side(features, gold, train=[fit] * count, dev=[held] * count, penalties=PENALTIES, seed=seed)
        return float(np.round(100 * models.dev_accuracies, 2).max())
    if train is not None:
        fit = np.asarray(train, dtype=np.int64)
        check_folds(gold[fit], num_folds, nested=False, where=where)
        inner = _folds(gold, fit, num_folds, seed)
    else:
        check_folds(gold, num_folds, nested=True, where=where)
        outer = _folds(gold, np.arange(len(gold)), num_folds, seed)
        inner = [pair for rows, _ in outer for pair in _folds(gold, rows, num_folds, seed)]
    return float(np.mean(_mean_accuracies(features, gold, inner, num_folds, seed).max(axis=1)))


def _best_penalties(
    features_SD: NDArray[np.float32],
    gold_S: NDArray[np.str_],
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    num_folds: int,
    seed: int,
) -> list[float]:
    """For each run of `num_folds` folds the penalty of the best mean dev accuracy; the weakest of equals, as SentEval takes it."""
    return [PENALTIES[int(np.argmax(row))] for row in _mean_accuracies(features_SD, gold_S, folds, num_folds, seed)]


def _mean_accuracies(
    features_SD: NDArray[np.float32],
    gold_S: NDArray[np.str_],
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    num_folds: int,
    seed: int,
) -> NDArray[np.float64]:
    """(F, P) for each run of `num_folds` folds and each penalty the mean dev accuracy × 100, to two decimals, as SentEval compares them."""
    models = trained_side_by_side(
        features_SD,
        gold_S,
        train=[train for train, _ in folds for _ in PENALTIES],
        dev=[held for _, held in folds for _ in PENALTIES],
        penalties=PENALTIES * len(folds),
        seed=seed,
    )
    means = models.dev_accuracies.reshape(-1, num_folds, len(PENALTIES)).mean(axis=1)
    return np.asarray(np.round(100 * means, 2), dtype=np.float64)


def _with_dev(rows: NDArray[np.int64], random: np.random.RandomState) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to fit, and those held out to say when to stop."""
    order = random.permutation(rows)
    count = max(1, int(DEV_FRACTION * len(rows)))
    return order[count:], order[:count]


def _folds(
    gold_S: NDArray[np.str_], rows: NDArray[np.int64], num_folds: int, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(training rows, held-out rows) of each fold of `rows`, stratified."""
    from sklearn.model_selection import StratifiedKFold  # scikit-learn takes a second to import

    splitter = StratifiedKFold(n_splits=num_folds, shuffle=True, random_state=seed)
    return [(rows[train], rows[held]) for train, held in splitter.split(rows, gold_S[rows])]
