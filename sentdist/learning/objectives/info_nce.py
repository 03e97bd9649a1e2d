"""InfoNCE over the batch: RCL's Eq. 1 (Tan, Rolland and Tian 2022, arXiv 2209.13241), and the loss of every contrastive baseline here."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from sentdist.learning.encoder.batch import Batch
from sentdist.learning.grad_cache import mean_over_blocks
from sentdist.learning.objectives.objective import Objective, anchors_and_candidates, check_temperature, cosine_logits, own_candidates


def info_nce(anchors_BD: Tensor, candidates_MD: Tensor, *, first_row: int, temperature: float | Tensor) -> Tensor:
    """Eq. 1:  ℓ_i = −log( e^{cos(q_i, ind_i)/τ} / Σ_j e^{cos(q_i, ind_j)/τ} ), j = i included.

    Optimizes: each anchor q_i is closer to its own positive ind_i than to any other candidate of the batch.
    Shapes: anchors (B, D) of this rank; candidates (M, D) of all ranks, or (2M, D) with the M hard negatives behind the M positives. Anchor
        b's own positive is candidate `first_row + b`. Embeddings as the encoder gives them: normalisation happens here.
    Units and reduction: nats, mean over the B anchors.
    Range: at or above ln(1 + (K − 1)·e^{−2/τ}) for K candidates, since cosines lie in [−1, 1]: 1.648 at K = 32, 2.254 at K = 64 (τ = 1).
        A loss near the floor has converged.
    Source: RCL, arXiv 2209.13241, Eq. 1, printed without temperature (τ = 1). Its Eq. 3 repeats the first term with a misprinted index;
        this is the reading of Eq. 1 and Eq. 4. Hard negatives as supervised SimCSE has them (Gao et al. 2021, arXiv 2104.08821, Eq. 5).
    """
    logits_BM = cosine_logits(anchors_BD, candidates_MD, temperature=temperature)
    return F.cross_entropy(logits_BM, own_candidates(anchors_BD, first_row=first_row))


@dataclass(frozen=True, kw_only=True)
class InfoNCE(Objective):
    """Eq. 1 as an objective; a corpus with a negative column gives hard negatives. RecipeError for a temperature that is not above 0."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature, where="info_nce.temperature")

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        anchors_BD, candidates_MD = anchors_and_candidates(embeddings, batch)

        def of_block(first: int, last: int) -> Tensor:
            return info_nce(anchors_BD[first:last], candidates_MD, first_row=batch.first_row + first, temperature=self.temperature)

        return mean_over_blocks(of_block, num_rows=len(anchors_BD), num_columns=len(candidates_MD))
