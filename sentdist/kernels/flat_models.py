"""MPNet, T5 and mT5 on flat sentences: replace their attention, which adds a learned number for the distance of two tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import NewGELUActivation
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet import modeling_mpnet
from transformers.models.mt5 import modeling_mt5
from transformers.models.t5 import modeling_t5

from sentdist.kernels.flat_attention import Segments, distances_within, flat_attention


def lay_flat(model: Any) -> None:
    """Let an MPNet `model` take `segments`, like models with exchangeable attention in transformers."""
    model.__class__ = MPNetModel
    for layer in model.encoder.layer:
        layer.__class__ = MPNetLayer
        layer.attention.attn.scaling = layer.attention.attn.attention_head_size**-0.5


class MPNetModel(modeling_mpnet.MPNetModel):
    """transformers' model, whose layers can also be recomputed in the backward pass."""

    supports_gradient_checkpointing = True

    def forward(
        self, *args: Any, segments: Segments | None = None, drophead: float = 0.0, output_hidden_states: bool = False, **kwargs: Any
    ) -> BaseModelOutput:
        """segments: None for sentences that are padded, as in an export."""
        if segments is None:
            return super().forward(*args, output_hidden_states=output_hidden_states, **kwargs)
        segments = replace(segments, distances=self._distances(segments.longest))
        states = self.embeddings(*args, **kwargs)
        kept = [states] if output_hidden_states else []
        for layer in self.encoder.layer:
            states = layer(states, segments=segments, drophead=drophead)
            if output_hidden_states:
                kept.append(states)
        return BaseModelOutput(last_hidden_state=states, hidden_states=tuple(kept) or None)

    def _distances(self, longest: int) -> Tensor:
        """Return the distances of all layers."""
        encoder: Any = self.encoder
        embedding = encoder.relative_attention_bias
        return distances_within(longest, embedding, partial(encoder.relative_position_bucket, num_buckets=embedding.num_embeddings))


class MPNetLayer(GradientCheckpointingLayer, modeling_mpnet.MPNetLayer):
    def forward(self, hidden_states: Tensor, *args: Any, segments: Segments | None = None, drophead: float = 0.0, **kwargs: Any) -> Any:
        """Map (1, T, W) to (1, T, W) if there are segments."""
        if segments is None:
            return super().forward(hidden_states, *args, **kwargs)
        parts: tuple[Any, ...] = self.attention, self.intermediate, self.output
        attention, intermediate, output = parts
        own = attention.attn
        shape = (own.num_attention_heads, own.attention_head_size)
        query, key, value = (part(hidden_states).unflatten(-1, shape).transpose(1, 2) for part in (own.q, own.k, own.v))
        context, _ = flat_attention(
            own, query, key, value, None, segments=segments, scaling=own.scaling, dropout=own.dropout.p, drophead=drophead
        )  # fmt: skip
        middle = attention.LayerNorm(attention.dropout(own.o(context.flatten(2))) + hidden_states)
        return output(intermediate(middle), middle)


def make_ready(model: Any, *, is_flat: bool) -> None:
    """Prepare a T5 or mT5 `model`, which takes `segments` if `is_flat`; names of weights are unchanged.

    One matrix of word embeddings in one module, and attention that drops with `config.attention_dropout`: the families have one probability
    for
    both kinds of dropout. GELU is one operation: transformers' "gelu_new" is eight, which keep as many tensors for the backward pass.
    """
    for module in list(model.modules()):
        if isinstance(getattr(module, "act", None), NewGELUActivation):
            module.act = nn.GELU(approximate="tanh")
    model.encoder.set_input_embeddings(model.shared)
    for attention in _attentions(model):
        attention.dropout = model.config.attention_dropout
        if is_flat:
            attention.__class__ = _FLAT[type(attention)]
    if is_flat:
        model.__class__ = _FLAT[type(model)]


def _attentions(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "relative_attention_num_buckets")]


class _FlatEncoder:
    """A model that passes the distance numbers, stored in the first layer for all, with the segments."""

    def forward(self, *args: Any, segments: Segments, **kwargs: Any) -> BaseModelOutput:
        segments = replace(segments, distances=_distances(self, segments.longest))
        output: BaseModelOutput = super().forward(*args, segments=segments, **kwargs)  # type: ignore[misc]
        return output


def _distances(model: Any, longest: int) -> Tensor:
    """Return the distances of all layers, from the first one's table."""
    first = model.encoder.block[0].layer[0].SelfAttention
    bucket_of = partial(
        first._relative_position_bucket,
        num_buckets=first.relative_attention_num_buckets, max_distance=first.relative_attention_max_distance,
    )  # fmt: skip
    return distances_within(longest, first.relative_attention_bias, bucket_of)


class _FlatAttention:
    def compute_bias(self, *_: object, device: torch.device | None = None, **__: object) -> Tensor:
        """Return an empty tensor: flat attention does not read the bias, which would have the square of a step's tokens."""
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
