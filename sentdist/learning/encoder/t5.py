"""The encoder of a T5, mT5 or UMT5 as an encoder of its own."""

from __future__ import annotations

from typing import Any

from torch import nn


def make_ready(model: Any) -> None:
    """One matrix of word embeddings in one module, and attention that drops with `config.attention_dropout`: the families have one
    probability for both kinds of dropout. Names of weights stay."""
    model.encoder.set_input_embeddings(model.shared)
    for attention in attentions(model):
        attention.dropout = model.config.attention_dropout


def attentions(model: nn.Module) -> list[Any]:
    """The attention of each layer."""
    return [module for module in model.modules() if hasattr(module, "relative_attention_num_buckets")]
