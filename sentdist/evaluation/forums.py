"""Mean average precision as USEB computes it for CQADupStack (Wang et al. 2021, arXiv 2104.06979)."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

DEPTH = 100


def average_precisions(documents_QK: NDArray[np.int64], relevant: Sequence[Set[int]]) -> NDArray[np.float64]:
    """(Q,) the average precision × 100 of each question's first K ≤ 100 documents, best first.

    Divided by the number of relevant documents among these, not by that of all, as scikit-learn's average_precision_score of the first
    hundred does in USEB's code: what stands below them does not count. 0 where none is found.
    """
    hits_QK = np.array(
        [[document in known for document in row] for row, known in zip(documents_QK.tolist(), relevant, strict=True)], dtype=bool
    )
    hits_QK = hits_QK.reshape(len(relevant), -1)[:, :DEPTH]
    precision_QK = np.cumsum(hits_QK, axis=1) / np.arange(1, hits_QK.shape[1] + 1)
    return 100.0 * np.asarray(np.sum(precision_QK * hits_QK, axis=1) / np.maximum(1, hits_QK.sum(axis=1)))


def mean_over_forums(precisions: Sequence[NDArray[np.float64]]) -> float:
    """The mean over forums of the mean over their questions."""
    return float(np.mean([values.mean() for values in precisions]))
