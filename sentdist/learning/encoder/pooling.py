"""Pool flat token states into embeddings; dense heads; fast dropout and DropHead masks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from sentdist.families import POOLINGS, TANH, Dense
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


_LEVELS = 2**16


def keep_mask(shape: torch.Size | tuple[int, ...], p: float, *, device: torch.device) -> Tensor:
    """Draw a bool mask that is False with probability `p` (to 1/65536), from torch's default generator of `device`.

    On a CPU four decisions come from one 64-bit draw: `bernoulli_` is serial there and took 6 ms for a million values against 0.8 ms.
    """
    if device.type != "cpu":
        return torch.empty(shape, dtype=torch.bool, device=device).bernoulli_(1.0 - p)
    count = int(torch.Size(shape).numel())
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:count].view(shape) >= round(p * _LEVELS) - _LEVELS // 2


def dropout_factors(values: Tensor, p: float) -> Tensor:
    """Draw the factors of `values`: 0 with probability `p`, else 1 / (1 - p); same shape and type.

    Kept in the type of the values: a product with bool is twice as slow on a CPU, and both passes need one.
    """
    return keep_mask(values.shape, p, device=values.device).to(values.dtype).mul_(1.0 / (1.0 - p))


def dropout(values: Tensor, p: float) -> Tensor:
    """Zero each value with probability `p` and scale the rest by 1 / (1 - p), like `nn.functional.dropout` in training."""
    if p == 0.0:
        return values
    if values.device.type != "cpu":
        return nn.functional.dropout(values, p, training=True)
    return values * dropout_factors(values, p)


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


def head_scales(num_examples: int, num_heads: int, p: float, *, device: torch.device) -> Tensor:
    """Draw the DropHead factors (S, H) of one layer: m_h · H / Σ m_h with m_h ~ Bernoulli(1 − p), one mask per example.

    Source: Zhou et al. 2020, "Scheduled DropHead" (arXiv 2004.13342), with a constant p as in RCL.
    Examples whose heads are all dropped are drawn again, since 0/0 would follow; on a GPU by one more draw for all, because finding
    them would block in every layer.
    """
    kept = torch.empty(num_examples, num_heads, device=device).bernoulli_(1.0 - p)
    if device.type != "cpu" and p > 0.0:
        return _scaled(torch.where(kept.any(dim=1, keepdim=True), kept, heads_of_which_one_is_kept(kept, p)))
    while bool((empty := kept.sum(dim=1) == 0).any()):
        kept[empty] = torch.empty(int(empty.sum()), num_heads, device=device).bernoulli_(1.0 - p)
    return _scaled(kept)


def heads_of_which_one_is_kept(like: Tensor, p: float) -> Tensor:
    """Draw (S, H) m_h ~ Bernoulli(1 − p) given that some m_h of an example is 1: equivalent to rejection sampling, without reading the
    values.

    First the first head that is kept, P(j) = pʲ (1 − p) / (1 − p^H), by inversion; those before it are dropped, those after it are free.
    """
    num_examples, num_heads = like.shape
    shares = torch.rand(num_examples, 1, device=like.device, dtype=like.dtype) * (1.0 - p**num_heads)
    first = (torch.log1p(-shares) / math.log(p)).floor().clamp(max=num_heads - 1)
    head = torch.arange(num_heads, device=like.device)
    return torch.where(head > first, torch.empty_like(like).bernoulli_(1.0 - p), (head == first).to(like.dtype))


def _scaled(kept: Tensor) -> Tensor:
    return kept * (kept.shape[1] / kept.sum(dim=1, keepdim=True))
