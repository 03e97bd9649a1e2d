"""The regulators of RCL's Eq. 3 (Tan, Rolland and Tian 2022, arXiv 2209.13241), for itself and to stand beside any other objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.citation import Citation
from sentdist.objectives.info_nce import PAPER
from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Temperature

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sentdist.learning.bank import BankReader
    from sentdist.learning.encoder.batch import Batch


class Regulators(ObjectiveSpec):
    """The regulators of Eq. 3 alone, a term beside any other objective: nats, mean over B, sum over the N entropy encoders and the sides.

    A side is a column that stands for what an anchor means: the anchors, and the positives. With P positives an anchor their P sides count
    as one, by their mean, so that P = 1 gives Eq. 3 less its first term. Hard negatives are not regulated, as in Eq. 3.
    """

    title: ClassVar[str] = "contrastive regulators (of RCL Eq. 3, arXiv 2209.13241)"
    about: ClassVar[str] = "the regulators of RCL's Eq. 3 alone, to stand under any objective"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=None, labels="ignored", bank=True, alone=False)
    regulators_per_bank: ClassVar[int] = 2

    name: Literal["regulators"] = "regulators"
    temperature: Temperature = 1.0  # cosines are divided by it

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        import torch

        from sentdist.learning.anchor_blocks import mean_over_blocks
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
    """The N regulators of one side in Eq. 3: nats, mean over B, sum over n; 0 for N = 0.

    embeddings: (B, D) of this rank. augmented: (N, M, D) of the global batch. The candidates of regulator n are the M embeddings that
    entropy encoder n gave to the same side: none of another encoder, none of the other side.
    """
    from torch.nn import functional as F

    from sentdist.learning.objective import cosine_logits, own_candidates

    num_encoders = augmented_NMD.shape[0]
    logits_NBM = cosine_logits(embeddings_BD, augmented_NMD, temperature=temperature)
    targets_NB = own_candidates(embeddings_BD, first_row=first_row).expand(num_encoders, -1)
    return F.cross_entropy(logits_NBM.flatten(0, 1), targets_NB.flatten(), reduction="sum") / embeddings_BD.shape[0]


def augmented_by(bank: BankReader | None, batch: Batch, device: torch.device) -> tuple[Tensor, ...]:
    """(N, M, D) embeddings by the bank's N encoders, in the bank's type: of the anchors, then of each positive.

    Each rank looks up its own rows, unless they came with the batch (then it needs no bank), and gathers those of the others: where the
    bank lies is each rank's own affair.
    """
    from sentdist.learning.encoder.batch import sent_to
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
