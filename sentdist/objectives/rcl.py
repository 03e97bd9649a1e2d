"""Regularized contrastive learning, Eq. 3 of RCL (Tan, Rolland and Tian 2022, arXiv 2209.13241), the objective of the final encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from sentdist.citation import Citation
from sentdist.objectives.info_nce import PAPER, InfoNCE, info_nce
from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Rows, Temperature, Weight
from sentdist.objectives.regulators import augmented_by, regulators

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.encoder.batch import Batch


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
    hard_negatives: bool = True  # the third column's texts are candidates, too
    # None: that of the main term, as printed. At 0.05 regulators that start from the same encoder are saturated (1e-4 nats) and do nothing.
    regulator_temperature: Temperature | None = None
    regulator_weight: Weight = 1.0

    def settled(self, rows: Rows) -> Self:
        return self if self.regulator_temperature is not None else self.model_copy(update={"regulator_temperature": self.temperature})

    def follows(self, name: str) -> bool:
        return name == "regulator_temperature" and self.regulator_temperature == self.temperature

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        from sentdist.learning.anchor_blocks import mean_over_blocks
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

    Optimizes: Eq. 1, while each sentence stays close to what the N entropy encoders made of it (2N regulators).
    Shapes: anchors and positives (B, D) of this rank; candidates as in `info_nce`, hard negatives enter there only; augmented embeddings
        A^n (N, M, D) of the global batch's anchors and of its positives, constants.
    Units and reduction: nats, mean over the B anchors, **sum** over the 2N regulators. N = 0 is Eq. 1.
    Range: at or above (2N + 1) floors of Eq. 1 at τ = 1 and without hard negatives: 20.3 at N = 4, M = 64.
    Source: RCL, arXiv 2209.13241, Eq. 3, its first numerator read as ind_i (printed ind_j; Eq. 1 and Eq. 4 agree on ind_i).
        The paper prints neither a temperature nor a weight: `regulator_temperature` = `temperature` and `regulator_weight` = 1 is Eq. 3 as
        printed.
    """
    base = info_nce(anchors_BD, candidates_MD, first_row=first_row, temperature=temperature)
    anchor_terms = regulators(anchors_BD, augmented_anchors_NMD, first_row=first_row, temperature=regulator_temperature)
    positive_terms = regulators(positives_BD, augmented_positives_NMD, first_row=first_row, temperature=regulator_temperature)
    return base + regulator_weight * (anchor_terms + positive_terms)
