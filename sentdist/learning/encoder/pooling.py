"""From the token states of sentences, which lie flat, without padding, to their embeddings; and the dense layer of some poolings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from sentdist.learning.encoder.batch import TokenBatch
from sentdist.poolings import POOLINGS, TANH, Dense


class PoolingHead(nn.Module):
    """The dense layer of a pooling: by default tanh(W x + b), which SimCSE puts on the first token.

    width: of what it reads. like: "dense.weight" and, where it has one, "dense.bias" of the layer whose shape it has; None: to the same
    width, with a bias where `dense` says so.
    """

    def __init__(self, width: int, *, initializer_range: float, dense: Dense = TANH, like: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        has_bias, out_width = (dense.has_bias, width) if like is None else ("dense.bias" in like, len(like["dense.weight"]))
        self.dense = nn.Linear(width, out_width, bias=has_bias)
        self.activation: nn.Module = getattr(nn, dense.activation)()
        nn.init.normal_(self.dense.weight, std=initializer_range)
        if self.dense.bias is not None:
            nn.init.zeros_(self.dense.bias)

    def forward(self, embeddings_SD: Tensor) -> Tensor:
        states_SD: Tensor = self.activation(self.dense(embeddings_SD))
        return states_SD


def pool(layers: Sequence[Tensor], tokens: TokenBatch, *, pooling: str, training: bool, behind: int = 0) -> Tensor:
    """Pool flat token states (T, D) into embeddings (S, D) float32, before any dense layer.

    layers: what the model calls hidden_states (embeddings first, last layer last), or only the last layer where that is enough; their
    states may go on behind those of the batch. behind: so many tokens at the beginning of each sentence are left out.
    """
    known = POOLINGS[pooling]
    if not behind:
        return known.reduction.flat(known.read(layers, training=training), tokens.boundaries)
    places, boundaries = tokens.places_behind(behind)
    return known.reduction.flat([states_TD.index_select(0, places) for states_TD in known.read(layers, training=training)], boundaries)
