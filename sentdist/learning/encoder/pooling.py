"""How the token states of a sentence become its embedding, written for tokens that lie flat, without padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sentdist.learning.encoder.batch import TokenBatch

# What each pooling does; the names are those of `SentenceEncoder.load`.
POOLINGS = {
    "mean": "mean of the last layer's token states (Reimers & Gurevych 2019, arXiv 1908.10084)",
    "cls": "last state of the first token",
    "cls_mlp": "last state of the first token through a dense layer and tanh (Gao et al. 2021, arXiv 2104.08821)",
    "cls_mlp_train_only": "as cls_mlp in training; the dense layer is left out at test (Gao et al. 2021, unsupervised SimCSE)",
    "cls_last_five": "as cls_mlp in training; at test the mean of the first token's states of the last five layers (RSE's transfer tasks)",
    "first_last": "mean over tokens of the average of the first and the last layer's states (hidden_states[1] and [-1])",
}

LAST_LAYERS = 5  # of cls_last_five


def has_head(pooling: str) -> bool:
    """Say whether the pooling trains a dense layer of its own."""
    return pooling in ("cls_mlp", "cls_mlp_train_only", "cls_last_five")


def needs_all_layers(pooling: str) -> bool:
    """Say whether the pooling reads more than the last layer."""
    return pooling in ("first_last", "cls_last_five")


class PoolingHead(nn.Module):
    """tanh(W x + b), the dense layer that SimCSE puts on the first token."""

    def __init__(self, width: int, *, initializer_range: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        nn.init.normal_(self.dense.weight, std=initializer_range)
        nn.init.zeros_(self.dense.bias)

    def forward(self, embeddings_SD: Tensor) -> Tensor:
        return torch.tanh(self.dense(embeddings_SD))


def segment_mean(states_TD: Tensor, tokens: TokenBatch) -> Tensor:
    """Average the token states (T, D) of each sentence in float32: (S, D)."""
    return torch.segment_reduce(states_TD.float(), "mean", lengths=tokens.boundaries.diff().long(), axis=0, unsafe=True)


def first_tokens(states_TD: Tensor, tokens: TokenBatch) -> Tensor:
    """Take the first token's state of each sentence in float32: (S, D)."""
    return states_TD.index_select(0, tokens.boundaries[:-1]).float()


def last_five(layers: Sequence[Tensor]) -> Sequence[Tensor]:
    """The last five transformer layers; all of them where there are fewer. layers: embeddings first."""
    return layers[1:][-LAST_LAYERS:]


def pool(layers: Sequence[Tensor], tokens: TokenBatch, *, pooling: str, training: bool) -> Tensor:
    """Pool flat token states (T, D) into embeddings (S, D) float32, before any dense layer.

    layers: what the model calls hidden_states (embeddings first, last layer last), or only the last layer where that is enough.
    """
    if pooling == "mean":
        return segment_mean(layers[-1], tokens)
    if pooling == "first_last":
        return segment_mean((layers[1] + layers[-1]) / 2, tokens)
    if pooling == "cls_last_five" and not training:
        return torch.stack([first_tokens(layer, tokens) for layer in last_five(layers)]).mean(dim=0)
    return first_tokens(layers[-1], tokens)
