"""What operations give that only a GPU has, attention kernels first, computed as on a CPU: who compares the two can ask for the same bits.

With dropout the memory-efficient kernel draws as that of torch 2.13 does: by counting, in 32 bits forward and in 64 backward. Given
boundaries, its forward pass takes the longest sentence to have no keys, and counts from 0 for each sentence and head.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sentdist.kernels.grouped_attention import GroupedAttention, length_groups
from sentdist.kernels.interface import Band

States = tuple[Tensor, Tensor, Tensor]  # query, key, value

aten: Any = torch.ops.aten
GRID = 65_535  # sentences that CUDA lets a call have
_CALLS = itertools.count(1)  # each draws on from where the one before it stopped


def _attend(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, p: float, scale: float, band: Band | None = None
) -> tuple[Tensor, Any]:
    """The context (T, H, head width), and what its derivative needs."""
    assert p == 0.0, "nobody draws masks on a GPU that is pretended"
    num_tokens, num_heads, width = query.shape
    key, value = (states.repeat_interleave(num_heads // states.shape[1], dim=1) for states in (key, value))
    grouped = length_groups(bounds.diff().tolist(), torch.device("cpu"), num_heads=num_heads)
    kept = SimpleNamespace(save_for_backward=lambda *tensors: setattr(kept, "saved_tensors", tensors))
    queries, keys, values = (states.reshape(num_tokens * num_heads, width) for states in (query, key, value))
    return GroupedAttention.forward(kept, queries, keys, values, grouped, scale, p, band).view(query.shape), kept


def _gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, scale: float, band: Band | None = None
) -> list[Tensor]:
    _, kept = _attend(query, key, value, bounds, 0.0, scale, band)
    found = [one.view(query.shape) for one in GroupedAttention.backward(kept, grad.reshape(-1, grad.shape[-1]))[:3] if one is not None]
    # Of a key head that several queries share: the sum of theirs.
    return [one.unflatten(1, (states.shape[1], -1)).sum(dim=2) for one, states in zip(found, (query, key, value), strict=True)]


def _band(is_causal: bool, before: int | None, after: int | None) -> Band | None:
    """As FlashAttention reads its arguments, in which -1 is no bound."""
    reach = [None if bound is None or bound < 0 else bound for bound in (before, 0 if is_causal else after)]
    return None if reach == [None, None] else Band(before=reach[0], after=reach[1])


def _masked(states: States, bounds: Tensor, p: float, call: int, *, bits: int, keys: int | None = None) -> Iterator[tuple[slice, Tensor]]:
    """Of each sentence where it lies and its factors (H, L, L): 0 with probability p, else 1 / (1 - p); counted in so many bits.
    keys: of the longest sentence, as the kernel is given; None: as it is."""
    (_, num_heads, _), longest = states[0].shape, int(bounds.diff().max())
    keys = longest if keys is None else keys
    for number, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
        length = last - first
        head_HLL, row_HLL, column_HLL = np.ogrid[:num_heads, :length, :length]
        begins = ((number * num_heads + head_HLL) * longest * keys) & (2**bits - 1)
        draw = (begins + row_HLL * length + column_HLL + (call << 40)).astype(np.uint64)
        draw = (draw ^ (draw >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
        draw = (draw ^ (draw >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        keeps = (draw >> np.uint64(40)).astype(np.float64) / 2**24 >= p
        yield slice(first, last), torch.from_numpy(keeps / (1.0 - p)).to(states[0].dtype)


def _weights(query: Tensor, key: Tensor, scale: float, *, is_causal: bool) -> Tensor:
    scores = query @ key.transpose(1, 2) * scale
    behind = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    return (scores.masked_fill(behind, -torch.inf) if is_causal else scores).softmax(dim=-1)


def _dropped(states: States, bounds: Tensor, p: float, scale: float, call: int, keys: int | None, *, is_causal: bool) -> Tensor:
    """The context (T, H, head width)."""
    out = []
    for rows, factors in _masked(states, bounds, p, call, bits=32, keys=keys):
        query, key, value = (one[rows].transpose(0, 1) for one in states)
        out.append((_weights(query, key, scale, is_causal=is_causal) * factors @ value).transpose(0, 1))
    return torch.cat(out)


def _dropped_gradients(grad: Tensor, states: States, bounds: Tensor, p: float, scale: float, call: int, *, is_causal: bool) -> list[Tensor]:
    found: list[tuple[Tensor, ...]] = []
    for rows, factors in _masked(states, bounds, p, call, bits=63):
        query, key, value, grad_out = (one[rows].transpose(0, 1) for one in (*states, grad))
        weights = _weights(query, key, scale, is_causal=is_causal)
        grad_weights = grad_out @ value.transpose(1, 2) * factors
        grad_scores = weights * (grad_weights - (grad_weights * weights).sum(dim=-1, keepdim=True)) * scale
        found.append((grad_scores @ key, grad_scores.transpose(1, 2) @ query, (weights * factors).transpose(1, 2) @ grad_out))
    return [torch.cat([one.transpose(0, 1) for one in of_sentences]) for of_sentences in zip(*found, strict=True)]


def _flash(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, _: Tensor, *rest: Any,
    scale: float, window_size_left: int | None = None, window_size_right: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    _longest, _also, p, is_causal, _debug = rest
    assert len(bounds) - 1 <= GRID
    nothing, band = torch.zeros((), dtype=torch.int64), _band(is_causal, window_size_left, window_size_right)
    return _attend(q, k, v, bounds, p, scale, band)[0], torch.zeros(q.shape[1], q.shape[0]), nothing, nothing, nothing


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bounds: Tensor, *rest: Any,
    scale: float, window_size_left: int | None = None, window_size_right: int | None = None,
) -> Any:  # fmt: skip
    _also, _longest, _too, _p, is_causal, *_ = rest
    return tuple(_gradients(grad, q, k, v, bounds, scale, _band(is_causal, window_size_left, window_size_right)))


def _flat(bounds: Tensor | None, *states: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Boundaries, and states as (T, H, head width): of one sentence that is parted, or of several of one length."""
    count, length = states[0].shape[:2]
    bounds = torch.arange(0, count * length + 1, length, dtype=torch.int32) if bounds is None else bounds
    return bounds, [one.flatten(0, 1) for one in states]


def _efficient(q: Tensor, k: Tensor, v: Tensor, bias: None, parted: Tensor | None, _: Any, *rest: Any, scale: float) -> tuple[Any, ...]:
    longest, _also, p, mask, _keeps = rest
    bounds, states = _flat(parted, q, k, v)
    longest = q.shape[1] if parted is None else longest
    assert mask in (0, 1) and bias is None and len(bounds) - 1 <= GRID
    nothing, call = torch.zeros((), dtype=torch.int64), next(_CALLS)
    query, key, value = states
    assert q.shape == k.shape == v.shape, "that kernel has no heads that are shared"
    if p:
        out = _dropped((query, key, value), bounds, p, scale, call, None if parted is None else 0, is_causal=mask == 1)
    else:
        out = _attend(query, key, value, bounds, p, scale, _band(mask == 1, None, None))[0]
    return out.view(q.shape), torch.zeros(len(bounds) - 1, q.shape[2], longest), nothing, torch.tensor(call), longest, longest


def _efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: None, out: Tensor, parted: Tensor | None, *rest: Any, scale: float, **__: Any
) -> Any:
    _, longest, _also, _sums, p, _seed, call, mask, *_ = rest
    if longest > q.shape[1]:  # as torch 2.13 checks it, in the backward pass alone
        raise RuntimeError(f"Invalid max_seqlen_k:{longest}")
    bounds, (flat_grad, query, key, value) = _flat(parted, grad, q, k, v)
    if p:
        found = _dropped_gradients(flat_grad, (query, key, value), bounds, p, scale, int(call), is_causal=mask == 1)
    else:
        found = _gradients(flat_grad, query, key, value, bounds, scale, _band(mask == 1, None, None))
    return (*(one.view(q.shape) for one in found), None)


def _products(left: Tensor, right: Tensor, out_dtype: torch.dtype, *, out: Tensor) -> Tensor:
    return torch.bmm(left.to(out_dtype), right.to(out_dtype), out=out)


KERNELS: dict[Any, Callable[..., Any]] = {  # of all overloads, or of one
    aten._flash_attention_forward: _flash,
    aten._flash_attention_backward: _flash_backward,
    aten._efficient_attention_forward: _efficient,
    aten._efficient_attention_backward: _efficient_backward,
    aten.bmm.dtype_out: _products,
}
