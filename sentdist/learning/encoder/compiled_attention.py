"""Attention within sentences on a processor, by the compiled kernel: for layers that are not fused as a whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sentdist.learning.kernels import calls
from sentdist.learning.kernels.calls import Mask, Sentences, States


def compiled_attention(query: Tensor, key: Tensor, value: Tensor, *, boundaries: Tensor, scale: float, p: float) -> Tensor:
    """softmax(q kᵀ · scale) v within each sentence, (T, H, head width), each weight dropped with probability `p`.

    boundaries: (S + 1,) int32. No weights are kept: memory grows with T, not with the squares of lengths.
    """
    num_heads, width = query.shape[1:]
    sentences = Sentences(boundaries=boundaries, heads=num_heads, head_width=width, scale=scale)
    (mask,) = calls.draw_masks([p])
    rows = (states.reshape(len(query), num_heads * width) for states in (query, key, value))
    context: Tensor = _Attention.apply(*rows, sentences, mask)
    return context.view(query.shape)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, sentences: Sentences, mask: Mask | None) -> Tensor:
        context, statistics = calls.attention(States(query, key, value), sentences, mask, keep=True)
        ctx.save_for_backward(query, key, value, statistics)
        ctx.sentences, ctx.mask = sentences, mask
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, statistics = ctx.saved_tensors
        to = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        calls.attention_backward(States(query, key, value), ctx.sentences, ctx.mask, grad=grad.contiguous(), statistics=statistics, to=to)
        return *to, None, None
