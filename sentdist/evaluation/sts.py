"""Score similarities of pairs: correlations with STS gold scores, average precision of paraphrases; also normalization and cosines."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
    if first_SD.shape != second_SD.shape:
        raise DataError(
            where=where, found=f"embeddings of shapes {first_SD.shape} and {second_SD.shape}",
            expected="one embedding of each sentence of a pair, of one width", remedy="Encode both columns with the same encoder.",
        )  # fmt: skip
    return np.clip(np.vecdot(normalized(first_SD), normalized(second_SD)), -1.0, 1.0)


def spearman(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64]) -> float | None:
    """Return Spearman's rank correlation × 100, ties at their mean rank; None if undefined (fewer than two pairs, or no spread)."""
    if not _has_spread(similarities_S, gold_S):
        return None
    from scipy.stats import spearmanr  # half a second

    return 100.0 * float(spearmanr(similarities_S, gold_S).statistic)


def pearson(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64]) -> float | None:
    """Return Pearson's correlation × 100; None if undefined (fewer than two pairs, or no spread)."""
    if not _has_spread(similarities_S, gold_S):
        return None
    return 100.0 * float(np.corrcoef(similarities_S, gold_S)[0, 1])


def _has_spread(similarities_S: NDArray[np.float64], gold_S: NDArray[np.float64]) -> bool:
    return len(gold_S) > 1 and float(np.ptp(gold_S)) > 0 and float(np.ptp(similarities_S)) > COSINE_RESOLUTION


@dataclass(frozen=True, kw_only=True, eq=False)
class ParaphraseScore:
    """The average precision of paraphrase pairs.

    Args:
        ap: × 100, Σ (recall_n − recall_{n−1}) precision_n, pairs of equal similarity together; None if there is one label only, or all
            similarities are equal.
        share: × 100, of paraphrases among the pairs, the expected ap of random similarities.
    """

    ap: float | None
    share: float
    similarities: NDArray[np.float64]  # (P,)
    labels: NDArray[np.int64]  # (P,)


def score_paraphrases(similarities: ArrayLike, labels: ArrayLike) -> ParaphraseScore:
    """Score P similarities against labels 1 (paraphrase) and 0."""
    from sklearn.metrics import average_precision_score  # scikit-learn takes a second to import

    similarities_P, labels_P = np.asarray(similarities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    is_defined = 0 < labels_P.sum() < len(labels_P) and float(np.ptp(similarities_P)) > COSINE_RESOLUTION
    return ParaphraseScore(
        ap=100.0 * float(average_precision_score(labels_P, similarities_P)) if is_defined else None, share=100.0 * float(labels_P.mean()),
        similarities=similarities_P, labels=labels_P,
    )  # fmt: skip


def mean_of_all(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a value is None or there are no values."""
    given = list(values)
    defined = [value for value in given if value is not None]
    return statistics.fmean(defined) if defined and len(defined) == len(given) else None


@dataclass(frozen=True, kw_only=True, eq=False)
class StsScore:
    """The score of one STS set, and what tests against another encoder need.

    `spearman` and `pearson` are × 100, in [−100, 100]; None if undefined (equal gold scores, or a collapsed encoder).
    """

    spearman: float | None
    pearson: float | None
    subsets: tuple[str, ...]  # (S,) of each pair
    similarities: NDArray[np.float64]  # (S,)
    gold: NDArray[np.float64]  # (S,)

    def items(self) -> dict[str, Sequence[str] | NDArray[np.float64]]:
        """Return the columns to keep per pair (`subset`, `score`, `similarity`), in the order of the task's file."""
        return {"subset": self.subsets, "score": self.gold, "similarity": self.similarities}


def score_similarities(similarities: ArrayLike, scores: ArrayLike, subsets: Sequence[str]) -> StsScore:
    """Score S similarities against S gold scores: one correlation over all pairs, no regressor (SimCSE's rule, arXiv 2104.08821 §6)."""
    similarities_S, gold_S = np.asarray(similarities, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    return StsScore(
        spearman=spearman(similarities_S, gold_S), pearson=pearson(similarities_S, gold_S), subsets=tuple(subsets),
        similarities=similarities_S, gold=gold_S,
    )  # fmt: skip


def jaccard_scores(sentences1: Sequence[str], sentences2: Sequence[str]) -> NDArray[np.float64]:
    """Return (S,) Jaccard similarities over lower-cased whitespace tokens of each pair: a baseline without parameters."""
    overlaps = []
    for sentence1, sentence2 in zip(sentences1, sentences2, strict=True):
        words1, words2 = set(sentence1.lower().split()), set(sentence2.lower().split())
        overlaps.append(len(words1 & words2) / len(words1 | words2) if words1 | words2 else 0.0)
    return np.asarray(overlaps)
