"""MPNet on flat sentences: replace its attention, which adds a learned number for the distance of two tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet import modeling_mpnet

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
