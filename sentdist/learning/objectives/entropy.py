"""The objective of RCL's entropy encoders: Eq. 2 (Tan, Rolland and Tian 2022, arXiv 2209.13241)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from sentdist.learning.encoder.batch import Batch
from sentdist.learning.grad_cache import mean_over_blocks
from sentdist.learning.objectives.objective import (
    Objective,
    anchors_and_candidates,
    check_finite,
    check_temperature,
    cosine_logits,
    own_candidates,
)


def entropy_info_nce(anchors_BD: Tensor, candidates_MD: Tensor, *, first_row: int, temperature: float, phi: float) -> Tensor:
    """Eq. 2:  J_i = −log s_ii − φ Σ_{j≠i} s_ij log s_ij,   s_ij = e^{cos(q_i, ind_j)/τ} / Σ_k e^{cos(q_i, ind_k)/τ}, k = i included.

    Optimizes: Eq. 1, and the certainty about the candidates that are not the anchor's own. −Σ s log s is an entropy H_i ≥ 0, so
        J = Eq. 1 + φ·H: **φ > 0 lowers the entropy (more certain), φ < 0 raises it**, φ = 0 is Eq. 1. The paper's grid is .01 … .05.
    Shapes: as `info_nce`. With hard negatives they are candidates like the others (methods: the formulas do not say):
        the sum leaves out the positive only, 2M − 1 terms.
    Units and reduction: nats, mean over the B anchors.
    Range: for φ ≥ 0 at or above the floor of Eq. 1; for φ < 0 at or above it plus φ·ln(K) for K candidates.
        At τ = 1 H is about 3.5 (K = 32) or 4.2 nats (K = 64).
    Source: RCL, arXiv 2209.13241, Eq. 2. "i ≠ j" restricts the sum, not the denominator: the s_ij of the sum add up to 1 − s_ii and are not
        renormalised.
    """
    targets_B = own_candidates(anchors_BD, first_row=first_row)
    log_shares_BM = F.log_softmax(cosine_logits(anchors_BD, candidates_MD, temperature=temperature), dim=1)
    entropy_terms_BM = -log_shares_BM.exp() * log_shares_BM
    entropy_B = entropy_terms_BM.scatter(1, targets_B[:, None], 0.0).sum(dim=1)
    return F.nll_loss(log_shares_BM, targets_B) + phi * entropy_B.mean()


@dataclass(frozen=True, kw_only=True)
class EntropyInfoNCE(Objective):
    """Eq. 2 as an objective. RecipeError for a φ that is not finite or a temperature that is not above 0."""

    phi: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature, where="entropy.temperature")
        check_finite(self.phi, where="entropy.phi", remedy="The paper's grid is 0.01 … 0.05; negative values raise the entropy.")

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        anchors_BD, candidates_MD = anchors_and_candidates(embeddings, batch)

        def of_block(first: int, last: int) -> Tensor:
            first_row = batch.first_row + first
            return entropy_info_nce(anchors_BD[first:last], candidates_MD, first_row=first_row, temperature=self.temperature, phi=self.phi)

        return mean_over_blocks(of_block, num_rows=len(anchors_BD), num_columns=len(candidates_MD))
