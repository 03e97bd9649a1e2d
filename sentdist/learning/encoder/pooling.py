"""Pool flat token states into embeddings; dense heads; fast dropout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from sentdist.families import POOLINGS, TANH, Dense
from sentdist.kernels.tensors import dropout
from sentdist.learning.encoder.tokens import TokenBatch


class PoolingHead(nn.Module):
    """The dense layer of a pooling: by default tanh(W x + b), which SimCSE applies to the first token. `width`: of the input.

    like: "dense.weight" and, if present, "dense.bias" of the layer whose shape it takes; None: the same width, bias as in `dense`.
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

    layers: the model's hidden_states (embeddings first, last layer last), or only the last layer if that is enough; they may continue after
    the
    states of the batch. behind: the first so many tokens of each sentence are left out.
    """
    known = POOLINGS[pooling]
    if not behind:
        return known.reduction.flat(known.read(layers, training=training), tokens.boundaries)
    places, boundaries = tokens.places_behind(behind)
    return known.reduction.flat([states_TD.index_select(0, places) for states_TD in known.read(layers, training=training)], boundaries)


class Dropout(nn.Dropout):
    """`nn.Dropout` that draws its mask by `keep_mask`."""

    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.p) if self.training else values


def replace_dropout(model: nn.Module) -> None:
    """Let every `nn.Dropout` in `model` draw by `keep_mask`; probabilities and names are unchanged."""
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p))
