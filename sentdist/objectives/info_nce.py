"""InfoNCE: contrastive cross-entropy over the batch; RCL's Eq. 1 and the loss of the contrastive baselines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Temperature
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.encoder.tokens import Batch

PAPER = Citation(
    key="rcl",
    kind="misc",
    authors=("Mingxi Tan", "Alexis Rolland", "Andong Tian"),
    title="Regularized Contrastive Learning of Semantic Search",
    where="arXiv 2209.13241",
    year=2022,
    url="https://arxiv.org/abs/2209.13241",
    role="the method: Eq. 1-3, Algorithm 1",
)
INFONCE = Citation(
    key="infonce",
    kind="misc",
    authors=("Aaron van den Oord", "Yazhe Li", "Oriol Vinyals"),
    title="Representation Learning with Contrastive Predictive Coding",
    where="arXiv 1807.03748",
    year=2018,
    url="https://arxiv.org/abs/1807.03748",
    role="contrastive loss",
)
SIMCSE = Citation(
    key="simcse",
    kind="inproceedings",
    authors=("Tianyu Gao", "Xingcheng Yao", "Danqi Chen"),
    title="SimCSE: Simple Contrastive Learning of Sentence Embeddings",
    where="EMNLP",
    year=2021,
    url="https://arxiv.org/abs/2104.08821",
    role="contrastive learning of sentences",
    gave=("*simcse-*",),
)


class InfoNCE(ObjectiveSpec):
    """Eq. 1 of RCL (arXiv 2209.13241): cross-entropy over the positives (and hard negatives) of the global batch."""

    title: ClassVar[str] = "contrastive cross-entropy (RCL Eq. 1, arXiv 2209.13241)"
    about: ClassVar[str] = "contrastive cross-entropy: RCL's Eq. 1 (temperature 1), SimCSE's (0.05)"
    citations: ClassVar[tuple[Citation, ...]] = (INFONCE, SIMCSE)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused")

    name: Literal["info_nce"] = "info_nce"
    temperature: Temperature = 1.0  # cosines are divided by it
    hard_negatives: bool = True  # texts of the third column are candidates, too

    @property
    def remark(self) -> str | None:
        if "temperature" in self.model_fields_set:
            return None
        return "divides cosines by 1, as in RCL's Eq. 1; SimCSE and multiple-negatives ranking use `temperature: 0.05`"

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        """Return the loss; a negative column of the corpus gives hard negatives."""
        from sentdist.learning.grad_cache import against_candidates

        return against_candidates(partial(info_nce, temperature=self.temperature), embeddings, batch)


def info_nce(anchors_BD: Tensor, candidates_MD: Tensor, *, first_row: int, temperature: float | Tensor) -> Tensor:
    """Eq. 1:  ℓ_i = −log( e^{cos(q_i, ind_i)/τ} / Σ_j e^{cos(q_i, ind_j)/τ} ), j = i included.

    Optimizes: each anchor q_i is closer to its own positive ind_i than to any other candidate of the batch.
    Units and reduction: nats, mean over the B anchors.
    Range: at or above ln(1 + (K − 1)·e^{−2/τ}) for K candidates, since cosines lie in [−1, 1]: 1.648 at K = 32, 2.254 at K = 64 (τ = 1).
        A loss near the floor has converged.
    Source: RCL, arXiv 2209.13241, Eq. 1, printed without temperature (τ = 1). Its Eq. 3 repeats the first term with a misprinted index;
        this is the reading of Eq. 1 and Eq. 4. Hard negatives as in supervised SimCSE (Gao et al. 2021, arXiv 2104.08821, Eq. 5).
    Shapes:
        Anchors (B, D) of this rank; candidates (M, D) of all ranks, or (2M, D): the M positives, then the M hard negatives. The positive of
        anchor b is candidate `first_row + b`. Embeddings are not normalized yet: this function does it.
    """
    from torch.nn import functional as F

    from sentdist.learning.objective import cosine_logits, own_candidates

    logits_BM = cosine_logits(anchors_BD, candidates_MD, temperature=temperature)
    return F.cross_entropy(logits_BM, own_candidates(anchors_BD, first_row=first_row))
