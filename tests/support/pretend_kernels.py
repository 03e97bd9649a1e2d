"""FlashAttention, which only a GPU has, computed sentence by sentence on a CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sentdist.kernels.interface import Band

aten: Any = torch.ops.aten
GRID = 65_535  # sentences that CUDA lets a call have


def _weights(query: Tensor, key: Tensor, scale: float, band: Band | None) -> Tensor:
    scores = query.transpose(0, 1).float() @ key.permute(1, 2, 0).float() * scale
    return (scores if band is None else scores.masked_fill(band.hidden(scores.shape[-1], scores.device), -torch.inf)).softmax(dim=-1)


def _shared(states: Tensor, num_heads: int) -> Tensor:
    return states.repeat_interleave(num_heads // states.shape[1], dim=1)


def _attend(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, scale: float, band: Band | None) -> Tensor:
    """The context (T, H, head width)."""
    out = []
    for first, last in itertools.pairwise(bounds.tolist()):
        rows, num_heads = slice(first, last), query.shape[1]
        weights = _weights(query[rows], _shared(key[rows], num_heads), scale, band)
        out.append((weights @ _shared(value[rows], num_heads).transpose(0, 1).float()).transpose(0, 1))
    return torch.cat(out).to(query.dtype)


def _gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, scale: float, band: Band | None
) -> tuple[Tensor, ...]:
    found: list[tuple[Tensor, ...]] = []
    for first, last in itertools.pairwise(bounds.tolist()):
        rows, num_heads = slice(first, last), query.shape[1]
        states = (grad[rows], query[rows], _shared(key[rows], num_heads), _shared(value[rows], num_heads))
        grad_H, query_H, key_H, value_H = (one.transpose(0, 1).float() for one in states)
        weights = _weights(query[rows], _shared(key[rows], num_heads), scale, band)
        grad_weights = grad_H @ value_H.mT
        grad_scores = weights * (grad_weights - (grad_weights * weights).sum(dim=-1, keepdim=True)) * scale
        found.append(tuple(one.transpose(0, 1) for one in (grad_scores @ key_H, grad_scores.mT @ query_H, weights.mT @ grad_H)))
    whole = [torch.cat(parts).to(query.dtype) for parts in zip(*found, strict=True)]
    # Of a key head that several queries share: the sum of theirs.
    return tuple(one.unflatten(1, (like.shape[1], -1)).sum(dim=2) for one, like in zip(whole, (query, key, value), strict=True))


def _band(is_causal: bool, before: int | None, after: int | None) -> Band | None:
    """As FlashAttention reads its arguments, in which -1 is no bound."""
    reach = [None if bound is None or bound < 0 else bound for bound in (before, 0 if is_causal else after)]
    return None if reach == [None, None] else Band(before=reach[0], after=reach[1])


def _flash(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, _: Tensor, *rest: Any,
    scale: float, window_size_left: int | None = None, window_size_right: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    _longest, _also, p, is_causal, _debug = rest
    assert len(bounds) - 1 <= GRID and p == 0.0, "masks are not drawn here"
    nothing, band = torch.zeros((), dtype=torch.int64), _band(is_causal, window_size_left, window_size_right)
    return _attend(q, k, v, bounds, scale, band), torch.zeros(q.shape[1], q.shape[0]), nothing, nothing, nothing


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bounds: Tensor, *rest: Any,
    scale: float, window_size_left: int | None = None, window_size_right: int | None = None,
) -> Any:  # fmt: skip
    _also, _longest, _too, _p, is_causal, *_ = rest
    return _gradients(grad, q, k, v, bounds, scale, _band(is_causal, window_size_left, window_size_right))


KERNELS: dict[Any, Callable[..., Any]] = {  # of all overloads
    aten._flash_attention_forward: _flash,
    aten._flash_attention_backward: _flash_backward,
}
