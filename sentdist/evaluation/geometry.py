"""Measure the geometry of embeddings (alignment, uniformity, mean cosine, spectrum), and center or whiten them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.sts import checked_embeddings, normalized

ROWS_PER_TILE = 2048


@dataclass(frozen=True, kw_only=True, eq=False)
class Geometry:
    """The geometry of S normalised embeddings; `alignment` is None without positive pairs."""

    alignment: float | None
    uniformity: float
    mean_cosine: float
    effective_rank: float
    singular_values: NDArray[np.float64]  # (D,)


def measure_geometry(embeddings_SD: ArrayLike, *, positive_rows: ArrayLike | None = None) -> Geometry:
    """Measure embeddings; `positive_rows`: (P, 2) rows with the same meaning (SimCSE takes STS-B pairs scored above 4)."""
    pairs_P2 = np.zeros((0, 2), dtype=np.int64) if positive_rows is None else np.asarray(positive_rows, dtype=np.int64).reshape(-1, 2)
    checked_SD = checked_embeddings(embeddings_SD, where="geometry")
    values_D = singular_values(checked_SD)
    return Geometry(
        alignment=alignment(checked_SD[pairs_P2[:, 0]], checked_SD[pairs_P2[:, 1]]) if len(pairs_P2) else None,
        uniformity=uniformity(checked_SD), mean_cosine=mean_cosine(checked_SD), effective_rank=effective_rank(values_D),
        singular_values=values_D,
    )  # fmt: skip


def alignment(embeddings1_PD: ArrayLike, embeddings2_PD: ArrayLike) -> float:
    """Return the mean ‖f(x) − f(x⁺)‖² over P positive pairs of normalised embeddings, in [0, 4], less is better (Wang & Isola 2020)."""
    first_PD = normalized(checked_embeddings(embeddings1_PD, where="alignment"))
    second_PD = normalized(checked_embeddings(embeddings2_PD, where="alignment"))
    return float(np.mean(np.sum((first_PD - second_PD) ** 2, axis=1)))


def uniformity(embeddings_SD: ArrayLike, *, rows_per_tile: int = ROWS_PER_TILE) -> float:
    """Return the log mean over i<j of exp(−2‖f_i − f_j‖²), in [−8, 0], less is better (Wang & Isola 2020, t = 2).

    Exact over all unordered pairs; a mean of per-batch logs would be another number. Memory: rows_per_tile² numbers.
    """
    unit_SD = normalized(checked_embeddings(embeddings_SD, where="uniformity"))
    num_sentences = _at_least_two(unit_SD, "uniformity")
    total = 0.0
    for start in range(0, num_sentences, rows_per_tile):
        rows = unit_SD[start : start + rows_per_tile]
        within = np.exp(4.0 * (np.minimum(rows @ rows.T, 1.0) - 1.0))
        total += float(np.triu(within, k=1).sum())
        for other in range(start + rows_per_tile, num_sentences, rows_per_tile):
            # ‖f_i − f_j‖² = 2 − 2 cos, so −2‖·‖² = 4 (cos − 1).
            total += float(np.exp(4.0 * (rows @ unit_SD[other : other + rows_per_tile].T - 1.0)).sum())
    return float(np.log(total / (num_sentences * (num_sentences - 1) / 2)))


def mean_cosine(embeddings_SD: ArrayLike) -> float:
    """Return the exact mean cosine over all unordered pairs, from ‖Σ f‖², in [−1, 1]; near 0 for isotropic embeddings."""
    unit_SD = normalized(checked_embeddings(embeddings_SD, where="mean cosine"))
    num_sentences = _at_least_two(unit_SD, "mean cosine")
    sum_D = unit_SD.sum(axis=0)
    return float((sum_D @ sum_D - num_sentences) / (num_sentences * (num_sentences - 1)))


def singular_values(embeddings_SD: ArrayLike) -> NDArray[np.float64]:
    """Return the min(S, D) singular values, descending, of S normalised embeddings divided by √S (their squares sum to 1).

    Not centred: the anisotropy in RCL (arXiv 2209.13241, Eq. 4-6) is the excess of the first value over the others.
    """
    unit_SD = normalized(checked_embeddings(embeddings_SD, where="singular values"))
    return np.linalg.svd(unit_SD / np.sqrt(len(unit_SD)), compute_uv=False)


def effective_rank(singular_values_D: NDArray[np.float64]) -> float:
    """Return exp of the entropy (nats) of the singular values scaled to sum 1, the effective rank (Roy & Vetterli 2007)."""
    shares_D = singular_values_D / singular_values_D.sum()
    shares_D = shares_D[shares_D > 0]
    return float(np.exp(-np.sum(shares_D * np.log(shares_D))))


def _at_least_two(unit_SD: NDArray[np.float64], where: str) -> int:
    if len(unit_SD) < 2:
        raise DataError(where=where, found="one embedding", expected="at least two", remedy="A pair needs two sentences.")
    return len(unit_SD)


def postprocess(embeddings_SD: np.ndarray, kind: Literal["none", "center", "whiten"]) -> np.ndarray:
    """Return (S, D) embeddings minus their mean ("center"), or also decorrelated to unit variance ("whiten").

    Whitening is that of Su et al. 2021 (arXiv 2103.15316): x → (x − μ) U Λ^(−1/2), from the covariance UΛUᵀ of the given embeddings.
    Directions without variance (fewer sentences than channels) are left out, so the width may shrink.
    """
    if kind == "none":
        return embeddings_SD
    centered_SD = embeddings_SD.astype(np.float64) - embeddings_SD.mean(axis=0, dtype=np.float64)
    return (centered_SD if kind == "center" else _whitened(centered_SD)).astype(np.float32)


def _whitened(centered_SD: np.ndarray) -> np.ndarray:
    _, singular, directions = np.linalg.svd(centered_SD, full_matrices=False)
    kept = singular > singular[0] * 1e-6  # below that float32 embeddings hold rounding only
    scale = np.sqrt(len(centered_SD)) / singular[kept]
    return centered_SD @ directions[kept].T * scale
