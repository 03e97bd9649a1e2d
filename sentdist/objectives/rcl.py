"""Regularized contrastive learning, the objective of the final encoder: RCL's Eq. 3 (Tan, Rolland and Tian 2022, arXiv 2209.13241)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from sentdist.objectives.info_nce import PAPER, InfoNCE, info_nce
from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Rows, Temperature, Weight
from sentdist.text import Citation

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sentdist.learning.bank import BankReader
    from sentdist.learning.encoder.tokens import Batch


class Regulators(ObjectiveSpec):
    """The regulators of Eq. 3 alone, beside any other objective: nats, mean over B, sum over the N entropy encoders and the sides.

    The sides are the columns that are regulated: anchors and positives. P positives per anchor count as one side, by their mean, so that
    P = 1 gives Eq. 3 without its first term. Hard negatives are not regulated, as in Eq. 3.
    """

    title: ClassVar[str] = "contrastive regulators (of RCL Eq. 3, arXiv 2209.13241)"
    about: ClassVar[str] = "the regulators of RCL's Eq. 3 alone, a term to add to any objective"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=None, labels="ignored", bank=True, alone=False)
    regulators_per_bank: ClassVar[int] = 2

    name: Literal["regulators"] = "regulators"
    temperature: Temperature = 1.0  # cosines are divided by it

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        import torch

        from sentdist.learning.grad_cache import mean_over_blocks
        from sentdist.learning.objective import split_columns

        sides = batch.num_positives + 1
        columns_CBD = split_columns(embeddings, batch)[:sides]
        augmented = augmented_by(inputs.bank, batch, embeddings.device)
        weights = (1.0, *(1.0 / batch.num_positives for _ in range(batch.num_positives)))

        def of_block(first: int, last: int) -> Tensor:
            terms = [
                weight * regulators(column_BD[first:last], side_NMD, first_row=batch.first_row + first, temperature=self.temperature)
                for weight, column_BD, side_NMD in zip(weights, columns_CBD, augmented, strict=True)
            ]
            return torch.stack(terms).sum()

        num_columns = sum(side_NMD[..., 0].numel() for side_NMD in augmented)
        return mean_over_blocks(of_block, num_rows=batch.num_rows, num_columns=num_columns, device=embeddings.device)


def regulators(embeddings_BD: Tensor, augmented_NMD: Tensor, *, first_row: int, temperature: float) -> Tensor:
    """Return the N regulators of one side in Eq. 3: nats, mean over B, sum over n; 0 for N = 0.

    Shapes: embeddings_BD (B, D) of this rank; augmented_NMD (N, M, D) of the global batch. The candidates of regulator n are the M
    embeddings
        of the same side by entropy encoder n: none of another encoder or the other side.
    """
    from torch.nn import functional as F

    from sentdist.learning.objective import cosine_logits, own_candidates

    num_encoders = augmented_NMD.shape[0]
    logits_NBM = cosine_logits(embeddings_BD, augmented_NMD, temperature=temperature)
    targets_NB = own_candidates(embeddings_BD, first_row=first_row).expand(num_encoders, -1)
    return F.cross_entropy(logits_NBM.flatten(0, 1), targets_NB.flatten(), reduction="sum") / embeddings_BD.shape[0]


def augmented_by(bank: BankReader | None, batch: Batch, device: torch.device) -> tuple[Tensor, ...]:
    """Return (N, M, D) embeddings by the bank's N encoders, in the bank's type: of the anchors, then of each positive.

    Each rank looks up its own rows, unless they came with the batch (then it needs no bank), and gathers the others.
    """
    from sentdist.kernels.tensors import sent_to
    from sentdist.learning.gather import gather_rows, rank_and_world_size

    own_NCBD = batch.augmented
    if own_NCBD is None:
        assert bank is not None, "the plan gives all regulators a bank"
        own_NCBD = bank.augmented(batch)
    own_NCBD = sent_to(own_NCBD, device)
    if rank_and_world_size()[1] == 1:
        return own_NCBD.unbind(1)
    rows_MCND = gather_rows(own_NCBD.permute(2, 1, 0, 3), of=batch.num_rows_of_all)
    return rows_MCND.permute(2, 1, 0, 3).contiguous().unbind(1)


class RCL(ObjectiveSpec):
    """Eq. 3: Eq. 1 plus two contrastive regulators for every entropy encoder in the bank."""

    title: ClassVar[str] = "regularized contrastive learning (RCL Eq. 3, arXiv 2209.13241)"
    about: ClassVar[str] = "an encoder held near the banks of N entropy encoders: RCL's Eq. 3"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused", bank=True)
    regulators_per_bank: ClassVar[int] = 2
    without_bank: ClassVar[type[ObjectiveSpec] | None] = InfoNCE

    name: Literal["rcl"] = "rcl"
    temperature: Temperature = 1.0  # cosines are divided by it
    hard_negatives: bool = True  # texts of the third column are candidates, too
    # null: that of the main term, as printed. At 0.05 regulators starting from the same encoder are saturated (1e-4 nats), without effect.
    regulator_temperature: Temperature | None = None
    regulator_weight: Weight = 1.0

    def settled(self, rows: Rows) -> Self:
        return self if self.regulator_temperature is not None else self.model_copy(update={"regulator_temperature": self.temperature})

    def follows(self, name: str) -> bool:
        return name == "regulator_temperature" and self.regulator_temperature == self.temperature

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        from sentdist.learning.grad_cache import mean_over_blocks
        from sentdist.learning.objective import anchors_and_candidates, split_columns

        anchors_BD, candidates_MD = anchors_and_candidates(embeddings, batch)
        positives_BD = split_columns(embeddings, batch)[1]
        anchors_NMD, positives_NMD = augmented_by(inputs.bank, batch, embeddings.device)

        def of_block(first: int, last: int) -> Tensor:
            return rcl(
                anchors_BD[first:last],
                positives_BD[first:last],
                candidates_MD,
                anchors_NMD,
                positives_NMD,
                first_row=batch.first_row + first,
                temperature=self.temperature,
                regulator_temperature=self.temperature if self.regulator_temperature is None else self.regulator_temperature,
                regulator_weight=self.regulator_weight,
            )

        num_columns = len(candidates_MD) + 2 * anchors_NMD[..., 0].numel()
        return mean_over_blocks(of_block, num_rows=len(anchors_BD), num_columns=num_columns, device=embeddings.device)


def rcl(
    anchors_BD: Tensor,
    positives_BD: Tensor,
    candidates_MD: Tensor,
    augmented_anchors_NMD: Tensor,
    augmented_positives_NMD: Tensor,
    *,
    first_row: int,
    temperature: float,
    regulator_temperature: float,
    regulator_weight: float,
) -> Tensor:
    """Eq. 3:  J_i = Eq. 1 − Σ_n log e^{cos(q_i, A^n_{q_i})} / Σ_k e^{cos(q_i, A^n_{q_k})} − Σ_n log e^{cos(ind_i,
    A^n_{ind_i})} / Σ_k e^{cos(ind_i, A^n_{ind_k})}

    Optimizes: Eq. 1, while each sentence stays close to its embeddings by the N entropy encoders (2N regulators).
    Units and reduction: nats, mean over the B anchors, **sum** over the 2N regulators. N = 0 is Eq. 1.
    Range: at or above (2N + 1) floors of Eq. 1 at τ = 1 and without hard negatives: 20.3 at N = 4, M = 64.
    Source: RCL, arXiv 2209.13241, Eq. 3, its first numerator read as ind_i (printed ind_j; Eq. 1 and Eq. 4 agree on ind_i).
        The paper prints neither a temperature nor a weight: `regulator_temperature` = `temperature` and `regulator_weight` = 1 is Eq. 3 as
        printed.
    Shapes:
        Anchors and positives (B, D) of this rank; candidates as in `info_nce`, the only place of hard negatives; augmented embeddings
        A^n (N, M, D) of the global batch's anchors and positives, constants.
    """
    base = info_nce(anchors_BD, candidates_MD, first_row=first_row, temperature=temperature)
    anchor_terms = regulators(anchors_BD, augmented_anchors_NMD, first_row=first_row, temperature=regulator_temperature)
    positive_terms = regulators(positives_BD, augmented_positives_NMD, first_row=first_row, temperature=regulator_temperature)
    return base + regulator_weight * (anchor_terms + positive_terms)
