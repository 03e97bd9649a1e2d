"""Masked language modelling: guess hidden tokens from the states around them (Devlin et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from sentdist.objectives.objective_spec import LossInputs, Mismatch, Needs, ObjectiveSpec
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.objective import Objective

PAPER = Citation(
    key="bert",
    kind="inproceedings",
    authors=("Jacob Devlin", "Ming-Wei Chang", "Kenton Lee", "Kristina Toutanova"),
    title="BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    where="NAACL-HLT",
    year=2019,
    url="https://arxiv.org/abs/1810.04805",
    role="masked language modelling, pretrained encoder",
    gave=("bert-*", "*/bert-*"),
)


class MaskedLM(ObjectiveSpec):
    """Masked language modelling (Devlin et al. 2019): a term of SimCSE, or pre-training by itself."""

    title: ClassVar[str] = "masked language modelling"
    about: ClassVar[str] = "masked language modelling: a term beside others, or pre-training"
    citations: ClassVar[tuple[Citation, ...]] = (PAPER,)
    needs: ClassVar[Needs] = Needs(columns=1, positives=None, labels="ignored")

    name: Literal["mlm"] = "mlm"
    mask_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15

    def mismatch_of_encoder(self, *, pooling: str, width: int | None, has_mask_token: bool) -> Mismatch | None:
        if has_mask_token:
            return None
        return Mismatch(
            found="a tokenizer without a mask token",
            expected="a tokenizer for masked language modelling",
            remedy="Use another encoder, or leave the objective mlm out.",
        )

    def make_loss(self, inputs: LossInputs) -> Objective:
        from sentdist.objectives.learned.mlm import MaskedLMLoss

        encoder = inputs.needed_encoder(self.name)
        return MaskedLMLoss(encoder, masked_lm, fraction=self.mask_fraction, precision=inputs.precision, micro_batch=inputs.micro_batch)


def masked_lm(logits_KV: Tensor, token_ids_K: Tensor) -> Tensor:
    """−Σ_k log p(token k) over K hidden tokens with logits (K, V): nats, **sum** over K, 0 for none, in float32."""
    from torch.nn import functional as F

    return F.cross_entropy(logits_KV.float(), token_ids_K, reduction="sum")
