"""What can be done to finished embeddings before they are compared: centring and whitening."""

from __future__ import annotations

from typing import Literal

import numpy as np


def postprocess(embeddings_SD: np.ndarray, kind: Literal["none", "center", "whiten"]) -> np.ndarray:
    """(S, D) embeddings with their mean removed ("center"), or decorrelated to unit variance as well ("whiten").

    Whitening is that of Su et al. 2021 (arXiv 2103.15316): x → (x − μ) U Λ^(−1/2), from the covariance UΛUᵀ of the given embeddings.
    Directions without variance (fewer sentences than channels) are left out, so the width may shrink.
    """
    if kind == "none":
        return embeddings_SD
    centered = embeddings_SD.astype(np.float64) - embeddings_SD.mean(axis=0, dtype=np.float64)
    if kind == "center":
        return centered.astype(np.float32)
    _, singular, directions = np.linalg.svd(centered, full_matrices=False)
    kept = singular > singular[0] * 1e-6  # below that float32 embeddings hold rounding only
    scale = np.sqrt(len(centered)) / singular[kept]
    return (centered @ directions[kept].T * scale).astype(np.float32)
