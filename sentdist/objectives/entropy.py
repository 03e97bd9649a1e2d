"""The objective of RCL's entropy encoders: Eq. 2 (Tan, Rolland and Tian 2022, arXiv 2209.13241)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.objectives.info_nce import PAPER
from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Temperature
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.encoder.tokens import Batch


class Entropy(ObjectiveSpec):
    """Eq. 2: Eq. 1 plus phi times the entropy of the scores of all other candidates; phi of either sign."""

    title: ClassVar[str] = "contrastive cross-entropy with an entropy term (RCL Eq. 2, arXiv 2209.13241)"
    about: ClassVar[str] = "InfoNCE, more certain or less by φ of either sign: RCL's entropy encoders, Eq. 2"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused")

    name: Literal["entropy"] = "entropy"
    phi: float  # weight of the entropy: 0 is InfoNCE, above 0 more certain, below 0 less certain
    temperature: Temperature = 1.0  # cosines are divided by it
    hard_negatives: bool = True  # texts of the third column are candidates, too

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        from sentdist.learning.grad_cache import against_candidates

        return against_candidates(partial(entropy_info_nce, temperature=self.temperature, phi=self.phi), embeddings, batch)


def entropy_info_nce(anchors_BD: Tensor, candidates_MD: Tensor, *, first_row: int, temperature: float, phi: float) -> Tensor:
    """Eq. 2:  J_i = −log s_ii − φ Σ_{j≠i} s_ij log s_ij,   s_ij = e^{cos(q_i, ind_j)/τ} / Σ_k e^{cos(q_i, ind_k)/τ}, k = i included.

    Optimizes: Eq. 1, and the certainty about the candidates other than the anchor's positive. −Σ s log s is an entropy H_i ≥ 0, so
        J = Eq. 1 + φ·H: **φ > 0 lowers the entropy (more certain), φ < 0 raises it**, φ = 0 is Eq. 1. The paper's grid is .01 … .05.
    Units and reduction: nats, mean over the B anchors.
    Range: for φ ≥ 0 at or above the floor of Eq. 1; for φ < 0 at or above it plus φ·ln(K) for K candidates.
        At τ = 1 H is about 3.5 (K = 32) or 4.2 nats (K = 64).
    Source: RCL, arXiv 2209.13241, Eq. 2. "i ≠ j" restricts the sum, not the denominator: the s_ij of the sum add up to 1 − s_ii and are not
        renormalised.
    Shapes:
        As `info_nce`. Hard negatives are candidates like the others (the formulas do not say): the sum leaves out the positive only, 2M − 1
            terms.
    """
    from torch.nn import functional as F

    from sentdist.learning.objective import cosine_logits, own_candidates

    targets_B = own_candidates(anchors_BD, first_row=first_row)
    log_shares_BM = F.log_softmax(cosine_logits(anchors_BD, candidates_MD, temperature=temperature), dim=1)
    entropy_terms_BM = -log_shares_BM.exp() * log_shares_BM
    entropy_B = entropy_terms_BM.scatter(1, targets_B[:, None], 0.0).sum(dim=1)
    return F.nll_loss(log_shares_BM, targets_B) + phi * entropy_B.mean()
