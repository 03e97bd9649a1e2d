"""How well similarities distinguish paraphrases from other pairs: average precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.metrics import COSINE_RESOLUTION


@dataclass(frozen=True, kw_only=True, eq=False)
class ParaphraseScore:
    """ap: × 100, Σ (recall_n − recall_{n−1}) precision_n, pairs of one similarity taken together; None where it is not defined (one label
    only, or all similarities alike). share: × 100, of paraphrases among the pairs, which is what random similarities reach."""

    ap: float | None
    share: float
    similarities: NDArray[np.float64]  # (P,)
    labels: NDArray[np.int64]  # (P,)


def score_paraphrases(similarities: ArrayLike, labels: Sequence[str] | ArrayLike, *, where: str = "paraphrases") -> ParaphraseScore:
    """Score P similarities against labels 1 (paraphrase) and 0.
    Raises DataError for other labels and for similarities that are not finite."""
    from sklearn.metrics import average_precision_score  # scikit-learn takes a second to import

    similarities_P = np.asarray(similarities, dtype=np.float64)
    texts = [str(label) for label in labels]  # type: ignore[union-attr]
    other = next((text for text in texts if text not in ("0", "1")), None)
    if other is not None or similarities_P.shape != (len(texts),) or not texts:
        found = f"label {other}" if other is not None else f"{similarities_P.shape} similarities for {len(texts)} labels"
        raise DataError(where=where, found=found, expected="0 or 1 for each of one pair or more", remedy="Correct the labels.")
    if not np.isfinite(similarities_P).all():
        raise DataError(
            where=where, found="similarities that are NaN or infinite", expected="finite numbers", remedy="Look at the encoder."
        )
    labels_P = np.asarray([int(text) for text in texts], dtype=np.int64)
    is_defined = 0 < labels_P.sum() < len(labels_P) and float(np.ptp(similarities_P)) > COSINE_RESOLUTION
    return ParaphraseScore(
        ap=100.0 * float(average_precision_score(labels_P, similarities_P)) if is_defined else None,
        share=100.0 * float(labels_P.mean()),
        similarities=similarities_P,
        labels=labels_P,
    )
