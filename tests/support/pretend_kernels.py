"""What a GPU's attention kernels give, computed as on a CPU, so that whoever compares the two can ask for the same bits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from sentdist.learning.encoder.flat_attention import _GroupedAttention, length_groups

aten: Any = torch.ops.aten


def _attend(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, p: float, scale: float) -> tuple[Tensor, Any]:
    """The context (T, H, head width), and what its derivative needs."""
    assert p == 0.0, "nobody draws masks on a GPU that is pretended"
    num_tokens, num_heads, width = query.shape
    grouped = length_groups(bounds.diff().tolist(), torch.device("cpu"), num_heads=num_heads)
    kept = SimpleNamespace(save_for_backward=lambda *tensors: setattr(kept, "saved_tensors", tensors))
    rows = (states.reshape(num_tokens * num_heads, width) for states in (query, key, value))
    return _GroupedAttention.forward(kept, *rows, grouped, scale, p).view(query.shape), kept


def _gradients(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, scale: float) -> list[Tensor]:
    _, kept = _attend(query, key, value, bounds, 0.0, scale)
    found = _GroupedAttention.backward(kept, grad.reshape(-1, grad.shape[-1]))[:3]
    return [one.view(query.shape) for one in found if one is not None]


def _flash(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, _: Tensor, *rest: Any, scale: float) -> tuple[Tensor, ...]:
    _longest, _also, p, is_causal, _debug = rest
    assert not is_causal
    nothing = torch.zeros((), dtype=torch.int64)
    return _attend(q, k, v, bounds, p, scale)[0], torch.zeros(q.shape[1], q.shape[0]), nothing, nothing, nothing


def _flash_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bounds: Tensor, *_: Any, scale: float) -> Any:
    return tuple(_gradients(grad, q, k, v, bounds, scale))


def _efficient(q: Tensor, k: Tensor, v: Tensor, bias: None, bounds: Tensor, _: Tensor, *rest: Any, scale: float) -> tuple[Any, ...]:
    longest, _also, p, mask, _keeps = rest
    assert mask == 0 and bias is None
    nothing = torch.zeros((), dtype=torch.int64)
    out, _ = _attend(q[0], k[0], v[0], bounds, p, scale)
    return out[None], torch.zeros(len(bounds) - 1, q.shape[2], longest), nothing, nothing, longest, longest


def _efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: None, out: Tensor, bounds: Tensor, *_: Any, scale: float, **__: Any
) -> Any:
    return (*(one[None] for one in _gradients(grad[0], q[0], k[0], v[0], bounds, scale)), None)


KERNELS: dict[Any, Callable[..., Any]] = {
    aten._flash_attention_forward: _flash,
    aten._flash_attention_backward: _flash_backward,
    aten._efficient_attention_forward: _efficient,
    aten._efficient_attention_backward: _efficient_backward,
}
