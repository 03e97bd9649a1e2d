"""Score similarities of pairs: correlations with STS gold scores, average precision of paraphrases; also normalization and cosines."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError

# Cosines of float32 embeddings carry rounding noise of about 1e-7. A set of cosines narrower than this holds no ranking, only that noise.
COSINE_RESOLUTION = 1e-6


def checked_embeddings(embeddings: ArrayLike, *, where: str) -> NDArray[np.float64]:
    """Return (S, D) float64 embeddings; raise DataError unless every row is finite and not zero."""
    checked_SD = np.asarray(embeddings, dtype=np.float64)
    if checked_SD.ndim != 2 or 0 in checked_SD.shape:
        raise DataError(
            where=where, found=f"an array of shape {checked_SD.shape}",
            expected="embeddings of shape (sentences, width), neither of them 0", remedy="Encode a non-empty list of sentences.",
        )  # fmt: skip
    finite_S = np.all(np.isfinite(checked_SD), axis=1)
    if not finite_S.all():
        raise DataError(
            where=where,
            found=f"{int((~finite_S).sum())} of {len(checked_SD)} embeddings with NaN or infinity, first in row {int(np.argmin(finite_S))}",
            expected="finite numbers",
            remedy="The encoder has diverged or a sentence was empty: check its training loss, or encode in fp32.",
        )
    lengths_S = np.linalg.norm(checked_SD, axis=1)
    if not lengths_S.all():
        raise DataError(
            where=where, found=f"an embedding of length 0 in row {int(np.argmin(lengths_S))}", expected="embeddings that are not zero",
            remedy="The cosine of a zero vector is undefined; check how the encoder handles that sentence.",
        )  # fmt: skip
    return checked_SD


def normalized(embeddings_SD: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (S, D) rows scaled to Euclidean length 1."""
    return embeddings_SD / np.linalg.norm(embeddings_SD, axis=1, keepdims=True)


def paired_cosines(embeddings1_SD: ArrayLike, embeddings2_SD: ArrayLike, *, where: str) -> NDArray[np.float64]:
    """Return the (S,) cosines of row s of the first with row s of the second, in float64."""
    first_SD = checked_embeddings(embeddings1_SD, where=f"{where}: sentence1")
    second_SD = checked_embeddings(embeddings2_SD, where=f"{where}: sentence2")
    return np.clip(np.vecdot(normalized(first_SD), normalized(second_SD)), -1.0, 1.0)


def spearman(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64]) -> float | None:
    """Return Spearman's rank correlation × 100 over all pairs, ties at their mean rank; None if undefined (one pair, or no spread).

    No regressor (SimCSE's rule, arXiv 2104.08821 §6).
    """
    if not _has_spread(similarities_S, gold_S):
        return None
    from scipy.stats import spearmanr  # half a second

    return 100.0 * float(spearmanr(similarities_S, gold_S).statistic)


def pearson(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64]) -> float | None:
    """Return Pearson's correlation × 100; None if undefined (fewer than two pairs, or no spread)."""
    if not _has_spread(similarities_S, gold_S):
        return None
    return 100.0 * float(np.corrcoef(similarities_S, gold_S)[0, 1])


def _has_spread(similarities_S: NDArray[np.float64], gold_S: NDArray[Any]) -> bool:
    return len(gold_S) > 1 and float(np.ptp(gold_S)) > 0 and float(np.ptp(similarities_S)) > COSINE_RESOLUTION


def ranked_precision(similarities_P: NDArray[np.float64], labels_P: NDArray[np.int64]) -> float | None:
    """Return the average precision × 100 of P similarities of pairs with labels 1 (paraphrase) and 0.

    Σ (recall_n − recall_{n−1}) precision_n, pairs of equal similarity together; None if there is one label only, or no spread.
    """
    from sklearn.metrics import average_precision_score  # scikit-learn takes a second to import

    is_defined = _has_spread(similarities_P, labels_P)
    return 100.0 * float(average_precision_score(labels_P, similarities_P)) if is_defined else None


def mean_of_all(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a value is None or there are no values."""
    given = list(values)
    defined = [value for value in given if value is not None]
    return statistics.fmean(defined) if defined and len(defined) == len(given) else None


def jaccard_scores(sentences1: Sequence[str], sentences2: Sequence[str]) -> NDArray[np.float64]:
    """Return (S,) Jaccard similarities over lower-cased whitespace tokens of each pair: a baseline without parameters."""
    overlaps = []
    for sentence1, sentence2 in zip(sentences1, sentences2, strict=True):
        words1, words2 = set(sentence1.lower().split()), set(sentence2.lower().split())
        overlaps.append(len(words1 & words2) / len(words1 | words2) if words1 | words2 else 0.0)
    return np.asarray(overlaps)
