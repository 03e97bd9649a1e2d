"""The encoder of a T5, mT5 or UMT5 as an encoder of its own, and of the first two among flat sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import NewGELUActivation
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mt5 import modeling_mt5
from transformers.models.t5 import modeling_t5

from sentdist.learning.encoder.flat_attention import Segments


def make_ready(model: Any, *, is_flat: bool) -> None:
    """One matrix of word embeddings in one module, and attention that drops with `config.attention_dropout`: the families have one
    probability for both kinds of dropout. GELU is one operation: transformers' "gelu_new" is eight, which keep as many tensors for the
    backward pass. Names of weights stay. is_flat: let `model` take `segments`."""
    for module in list(model.modules()):
        if isinstance(getattr(module, "act", None), NewGELUActivation):
            module.act = nn.GELU(approximate="tanh")
    model.encoder.set_input_embeddings(model.shared)
    for attention in attentions(model):
        attention.dropout = model.config.attention_dropout
        if is_flat:
            attention.__class__ = _FLAT[type(attention)]
    if is_flat:
        model.__class__ = _FLAT[type(model)]


def attentions(model: nn.Module) -> list[Any]:
    """The attention of each layer."""
    return [module for module in model.modules() if hasattr(module, "relative_attention_num_buckets")]


class _FlatEncoder:
    """A model whose numbers for the distances of tokens, which the first layer has for all, go with the segments."""

    def forward(self, *args: Any, segments: Segments, **kwargs: Any) -> BaseModelOutput:
        segments = replace(segments, distances=_distances(self, segments.longest))
        output: BaseModelOutput = super().forward(*args, segments=segments, **kwargs)  # type: ignore[misc]
        return output


def _distances(model: Any, longest: int) -> Tensor:
    """(H, 2 · longest - 1): what each head adds where a key's place less the query's is 1 - longest to longest - 1."""
    first = model.encoder.block[0].layer[0].SelfAttention
    distances = torch.arange(1 - longest, longest, device=first.relative_attention_bias.weight.device)
    numbers = first._relative_position_bucket(
        distances, num_buckets=first.relative_attention_num_buckets, max_distance=first.relative_attention_max_distance
    )
    of_heads: Tensor = first.relative_attention_bias(numbers)
    return of_heads.t().contiguous()


class _FlatAttention:
    def compute_bias(self, *_: object, device: torch.device | None = None, **__: object) -> Tensor:
        """Nothing: for all pairs of a step's tokens it would be as large as their square, and flat attention does not read it."""
        return torch.empty(0, device=device)


class T5EncoderModel(_FlatEncoder, modeling_t5.T5EncoderModel):
    pass


class T5Attention(_FlatAttention, modeling_t5.T5Attention):
    pass


class MT5EncoderModel(_FlatEncoder, modeling_mt5.MT5EncoderModel):
    pass


class MT5Attention(_FlatAttention, modeling_mt5.MT5Attention):
    pass


_FLAT: dict[type, type] = {
    modeling_t5.T5EncoderModel: T5EncoderModel,
    modeling_t5.T5Attention: T5Attention,
    modeling_mt5.MT5EncoderModel: MT5EncoderModel,
    modeling_mt5.MT5Attention: MT5Attention,
}
