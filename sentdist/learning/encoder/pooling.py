"""From the token states of sentences, which lie flat, without padding, to their embeddings; and the dense layer of some poolings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sentdist.learning.encoder.batch import TokenBatch
from sentdist.poolings import POOLINGS


class PoolingHead(nn.Module):
    """tanh(W x + b), the dense layer that SimCSE puts on the first token."""

    def __init__(self, width: int, *, initializer_range: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        nn.init.normal_(self.dense.weight, std=initializer_range)
        nn.init.zeros_(self.dense.bias)

    def forward(self, embeddings_SD: Tensor) -> Tensor:
        return torch.tanh(self.dense(embeddings_SD))


def pool(layers: Sequence[Tensor], tokens: TokenBatch, *, pooling: str, training: bool) -> Tensor:
    """Pool flat token states (T, D) into embeddings (S, D) float32, before any dense layer.

    layers: what the model calls hidden_states (embeddings first, last layer last), or only the last layer where that is enough.
    """
    known = POOLINGS[pooling]
    return known.reduction.flat(known.read(layers, training=training), tokens.boundaries)
