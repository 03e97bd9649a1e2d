"""Regularized contrastive learning, the objective of the final encoder: RCL's Eq. 3 (Tan, Rolland and Tian 2022, arXiv 2209.13241)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sentdist.learning.bank import BankReader
from sentdist.learning.encoder.batch import Batch
from sentdist.learning.grad_cache import mean_over_blocks
from sentdist.learning.objectives.info_nce import info_nce
from sentdist.learning.objectives.objective import (
    Objective,
    anchors_and_candidates,
    check_finite,
    check_temperature,
    cosine_logits,
    own_candidates,
    split_columns,
)


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


def regulators(embeddings_BD: Tensor, augmented_NMD: Tensor, *, first_row: int, temperature: float) -> Tensor:
    """The N regulators of one side in Eq. 3: nats, mean over B, sum over n; 0 for N = 0.

    embeddings: (B, D) of this rank. augmented: (N, M, D) of the global batch. The candidates of regulator n are the M embeddings that
    entropy encoder n gave to the same side: none of another encoder, none of the other side.
    """
    num_encoders = augmented_NMD.shape[0]
    logits_NBM = cosine_logits(embeddings_BD, augmented_NMD, temperature=temperature)
    targets_NB = own_candidates(embeddings_BD, first_row=first_row).expand(num_encoders, -1)
    return F.cross_entropy(logits_NBM.flatten(0, 1), targets_NB.flatten(), reduction="sum") / embeddings_BD.shape[0]


@dataclass(frozen=True, kw_only=True)
class RCL(Objective):
    """Eq. 3 as an objective over a bank of N entropy encoders' embeddings.

    regulator_temperature: divisor of the regulators' cosines; None: the main term's.
        At 0.05 regulators that start from the same encoder are saturated (terms of 1e-4 nats) and do nothing.
    regulator_weight: factor of the summed regulators, 1 as printed.
    RecipeError for a temperature that is not above 0 or a weight that is not finite.
    """

    bank: BankReader
    temperature: float = 1.0
    regulator_temperature: float | None = None
    regulator_weight: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature, where="rcl.temperature")
        if self.regulator_temperature is not None:
            check_temperature(self.regulator_temperature, where="rcl.regulator_temperature")
        check_finite(self.regulator_weight, where="rcl.regulator_weight", remedy="1 is Eq. 3 as printed.")

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        anchors_BD, candidates_MD = anchors_and_candidates(embeddings, batch)
        positives_BD = split_columns(embeddings, batch)[1]
        anchors_NMD, positives_NMD = _augmented(self.bank, batch.sentence_ids[:2], embeddings.device)

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

        return mean_over_blocks(of_block, num_rows=len(anchors_BD), num_columns=len(candidates_MD) + 2 * anchors_NMD[..., 0].numel())


@dataclass(frozen=True, kw_only=True)
class Regulators(Objective):
    """The regulators of Eq. 3 alone, to be added to any objective: nats, mean over B, sum over the N entropy encoders and over the sides.

    A side is a column that stands for what an anchor means: the anchors, and the positives.
    With P positives an anchor their P sides count as one, by their mean, so that P = 1 gives Eq. 3 less its first term.
    Hard negatives are not regulated, as in Eq. 3. RecipeError for a temperature that is not above 0.
    """

    bank: BankReader
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature, where="regulators.temperature")

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        sides = batch.num_positives + 1
        columns_CBD = split_columns(embeddings, batch)[:sides]
        augmented = _augmented(self.bank, batch.sentence_ids[:sides], embeddings.device)
        weights = (1.0, *(1.0 / batch.num_positives for _ in range(batch.num_positives)))

        def of_block(first: int, last: int) -> Tensor:
            terms = [
                weight * regulators(column_BD[first:last], side_NMD, first_row=batch.first_row + first, temperature=self.temperature)
                for weight, column_BD, side_NMD in zip(weights, columns_CBD, augmented, strict=True)
            ]
            return torch.stack(terms).sum()

        return mean_over_blocks(of_block, num_rows=batch.num_rows, num_columns=sum(side_NMD[..., 0].numel() for side_NMD in augmented))


def _augmented(bank: BankReader, sentence_ids_CM: np.ndarray, device: torch.device) -> tuple[Tensor, ...]:
    """(N, M, D) embeddings by the bank's N encoders, one for each of the C columns of ids; one look-up for all."""
    num_rows = sentence_ids_CM.shape[1]
    return bank.rows(sentence_ids_CM.ravel()).to(device, non_blocking=True).split(num_rows, dim=1)
