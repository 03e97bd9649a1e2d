"""What can be done to finished embeddings before they are compared: centring and whitening."""

from __future__ import annotations

from typing import Literal, assert_never

import numpy as np


def postprocess(embeddings_SD: np.ndarray, kind: Literal["none", "center", "whiten"]) -> np.ndarray:
    """(S, D) embeddings with their mean removed ("center"), or decorrelated to unit variance as well ("whiten").

    Whitening is that of Su et al. 2021 (arXiv 2103.15316): x → (x − μ) U Λ^(−1/2), from the covariance UΛUᵀ of the given embeddings.
    Directions without variance (fewer sentences than channels) are left out, so the width may shrink.
    """
    match kind:
        case "none":
            return embeddings_SD
        case "center":
            return _centered(embeddings_SD).astype(np.float32)
        case "whiten":
            return _whitened(_centered(embeddings_SD)).astype(np.float32)
    assert_never(kind)


def _centered(embeddings_SD: np.ndarray) -> np.ndarray:
    return embeddings_SD.astype(np.float64) - embeddings_SD.mean(axis=0, dtype=np.float64)


def _whitened(centered_SD: np.ndarray) -> np.ndarray:
    _, singular, directions = np.linalg.svd(centered_SD, full_matrices=False)
    kept = singular > singular[0] * 1e-6  # below that float32 embeddings hold rounding only
    scale = np.sqrt(len(centered_SD)) / singular[kept]
    return centered_SD @ directions[kept].T * scale
