"""SupMPN: a ranking loss over several positives and negatives per anchor (Dehghan and Amasyali 2022, Appl. Sci. 12(19) 9659)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Temperature
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.encoder.tokens import Batch

PAPER = Citation(
    key="supmpn",
    kind="article",
    authors=("Somaiyeh Dehghan", "Mehmet Fatih Amasyali"),
    title="SupMPN: Supervised Multiple Positives and Negatives Contrastive Learning Model for Semantic Textual Similarity",
    where="Applied Sciences 12(19) 9659",
    year=2022,
    url="https://doi.org/10.3390/app12199659",
    role="several positives and negatives an anchor",
)
Masked = Literal["excluded", "zero"]


class SupMPN(ObjectiveSpec):
    """Several positives and negatives per anchor (Appl. Sci. 2022, 12(19) 9659, Eq. 4); with phi, an entropy encoder of this objective."""

    title: ClassVar[str] = "multiple positives and negatives (SupMPN, Appl. Sci. 2022, 12(19) 9659)"
    about: ClassVar[str] = "P positives and Q negatives an anchor"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=2, positives=None, negatives=1, labels="refused")

    name: Literal["supmpn"] = "supmpn"
    temperature: Temperature = 0.05  # cosines are divided by it
    masked: Masked = "excluded"  # an anchor's other positives: left out as in the paper, or zero logits as in the released code
    phi: float = 0.0

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        """Return the loss; P and Q are those of the batch."""
        from sentdist.learning.grad_cache import mean_over_blocks
        from sentdist.learning.objective import anchors_and_candidates

        anchors_BD, candidates_KD = anchors_and_candidates(embeddings, batch)
        columns_MCD = candidates_KD.unflatten(0, (-1, batch.num_rows_of_all)).transpose(0, 1)

        def of_block(first: int, last: int) -> Tensor:
            return supmpn(
                anchors_BD[first:last],
                columns_MCD[:, : batch.num_positives],
                columns_MCD[:, batch.num_positives :],
                first_row=batch.first_row + first,
                temperature=self.temperature,
                masked=self.masked,
                phi=self.phi,
            )

        return mean_over_blocks(of_block, num_rows=len(anchors_BD), num_columns=len(candidates_KD), device=embeddings.device)


def supmpn(
    anchors_BD: Tensor,
    positives_MPD: Tensor,
    negatives_MQD: Tensor,
    *,
    first_row: int,
    temperature: float,
    masked: Masked = "excluded",
    phi: float = 0.0,
) -> Tensor:
    """ℓ_i = −(1/P) Σ_k log( e(x_i, x⁺_ik) / ( e(x_i, x⁺_ik) + S⁺_i + S⁻_i ) ) + φ·H_i,   e(a, b) = e^{cos(a, b)/τ}.

    S⁺_i = Σ_{j≠i} Σ_k e(x_i, x⁺_jk), the positives of the other anchors;
    S⁻_i = Σ_j Σ_k e(x_i, x⁻_jk), the negatives of all anchors, its own included.
    Optimizes: each of an anchor's P positives is closer to it than the positives of other anchors and all negatives.
        The P − 1 other positives of the same anchor are no rivals: each k has 1 + (M − 1)·P + M·Q columns.
    Units and reduction: nats, mean over the B anchors and their P positives.
    Source: SupMPN, Section 4.1, printed with τ and without its value; the authors' code multiplies cosines by 20 (τ = 0.05). P = 1 is
        `info_nce` with Q hard negatives an anchor, and so supervised SimCSE for Q = 1.
    Args:
        masked: the P − 1 other positives. "excluded": as in the paper. "zero": as in the authors' code, which overwrites their logits
            with 0 and so adds P − 1 to every denominator (2.6e-5 nats at M = 8, less in larger batches).
        phi: weight of H_i = −(1/P) Σ_k Σ_j s_ij log s_ij over the candidates j that are not the anchor's own positives, s_ij their share
            in the denominator of k: Eq. 2 of RCL (arXiv 2209.13241) for P positives, to train entropy encoders with this loss.
            φ = 0 is SupMPN.
    Shapes:
        Anchors (B, D), rows `first_row` … `first_row + B − 1` of the global batch; positives (M, P, D) and negatives (M, Q, D) of all
        ranks; Q may be 0. Embeddings are not normalized yet: this function does it. No (B, P, M·(P + Q)) tensor: the shared part
        is summed once.
    """
    import torch
    from torch.nn import functional as F

    from sentdist.learning.objective import cosine_logits

    num_positives = positives_MPD.shape[1]
    candidates_KD = torch.cat([positives_MPD.flatten(0, 1), negatives_MQD.flatten(0, 1)])
    logits_BK = cosine_logits(anchors_BD, candidates_KD, temperature=temperature)
    rows_B1 = torch.arange(first_row, first_row + anchors_BD.shape[0], device=anchors_BD.device)[:, None]
    own_columns_BP = rows_B1 * num_positives + torch.arange(num_positives, device=anchors_BD.device)
    own_BP = logits_BK.gather(1, own_columns_BP)
    # The lowest finite number for −∞: a row in which nothing else is left would have no gradient.
    others_BK = logits_BK.scatter(1, own_columns_BP, torch.finfo(logits_BK.dtype).min)
    others_B1 = others_BK.logsumexp(dim=1, keepdim=True)
    rivals_B1 = others_B1
    if masked == "zero" and num_positives > 1:
        rivals_B1 = torch.logaddexp(others_B1, others_B1.new_full((), num_positives - 1.0).log())
    loss = -F.logsigmoid(own_BP - rivals_B1).mean()
    return loss if phi == 0 else loss + phi * _entropy_of_others(own_BP, others_BK, others_B1, rivals_B1).mean()


def _entropy_of_others(own_BP: Tensor, others_BK: Tensor, others_B1: Tensor, rivals_B1: Tensor) -> Tensor:
    """Return (B, P) nats: −Σ_j s_ij log s_ij with s_ij = w_ik·q_ij, q the softmax over the others, w_ik = Σ_j s_ij their part of
    denominator k.

    This equals w_ik·(H(q_i) − log w_ik), so the columns are read once per anchor instead of once per positive.
    """
    import torch

    log_q_BK = others_BK - others_B1
    entropy_B1 = -(log_q_BK.exp() * log_q_BK).sum(dim=1, keepdim=True)
    log_w_BP = others_B1 - torch.logaddexp(own_BP, rivals_B1)
    return log_w_BP.exp() * (entropy_B1 - log_w_BP)
