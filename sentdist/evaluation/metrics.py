"""How a list of similarities is compared with a list of gold scores: cosine, Spearman × 100, Pearson × 100."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError

# Cosines of float32 embeddings carry rounding noise of about 1e-7. A set of cosines narrower than this holds no ranking, only that noise.
COSINE_RESOLUTION = 1e-6


def checked_embeddings(embeddings: ArrayLike, *, where: str) -> NDArray[np.float64]:
    """(S, D) float64 embeddings, every row finite and longer than zero; DataError otherwise."""
    checked_SD = np.asarray(embeddings, dtype=np.float64)
    if checked_SD.ndim != 2 or 0 in checked_SD.shape:
        raise DataError(
            where=where,
            found=f"an array of shape {checked_SD.shape}",
            expected="embeddings of shape (sentences, width), neither of them 0",
            remedy="Encode a non-empty list of sentences.",
        )
    finite_S = np.all(np.isfinite(checked_SD), axis=1)
    if not finite_S.all():
        raise DataError(
            where=where,
            found=f"{int((~finite_S).sum())} of {len(checked_SD)} embeddings with NaN or infinity, first in row {int(np.argmin(finite_S))}",
            expected="finite numbers",
            remedy="The encoder has diverged or a sentence was empty: look at its training loss, or encode in fp32.",
        )
    lengths_S = np.linalg.norm(checked_SD, axis=1)
    if not lengths_S.all():
        raise DataError(
            where=where,
            found=f"an embedding of length 0 in row {int(np.argmin(lengths_S))}",
            expected="embeddings that have a direction",
            remedy="The cosine of a zero vector is undefined; look at what the encoder does with that sentence.",
        )
    return checked_SD


def normalized(embeddings_SD: NDArray[np.float64]) -> NDArray[np.float64]:
    """(S, D) rows of Euclidean length 1."""
    return embeddings_SD / np.linalg.norm(embeddings_SD, axis=1, keepdims=True)


def paired_cosines(embeddings1_SD: ArrayLike, embeddings2_SD: ArrayLike, *, where: str) -> NDArray[np.float64]:
    """(S,) cosine of row s of the first with row s of the second, in float64."""
    first_SD = checked_embeddings(embeddings1_SD, where=f"{where}: sentence1")
    second_SD = checked_embeddings(embeddings2_SD, where=f"{where}: sentence2")
    if first_SD.shape != second_SD.shape:
        raise DataError(
            where=where,
            found=f"embeddings of shapes {first_SD.shape} and {second_SD.shape}",
            expected="one embedding of each sentence of a pair, of one width",
            remedy="Encode both columns with the same encoder.",
        )
    return np.clip(np.vecdot(normalized(first_SD), normalized(second_SD)), -1.0, 1.0)


def spearman(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64]) -> float | None:
    """Spearman's rank correlation × 100, ties at their mean rank; None where it is not defined (fewer than two pairs, or no spread)."""
    if not _has_spread(similarities_S, gold_S):
        return None
    from scipy.stats import spearmanr  # half a second

    return 100.0 * float(spearmanr(similarities_S, gold_S).statistic)


def pearson(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64]) -> float | None:
    """Pearson's correlation × 100; None where it is not defined (fewer than two pairs, or no spread)."""
    if not _has_spread(similarities_S, gold_S):
        return None
    return 100.0 * float(np.corrcoef(similarities_S, gold_S)[0, 1])


def _has_spread(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64]) -> bool:
    return len(gold_S) > 1 and float(np.ptp(gold_S)) > 0 and float(np.ptp(similarities_S)) > COSINE_RESOLUTION
