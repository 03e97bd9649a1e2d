"""Attention within sentences by kernels of our own: for layers that are not computed as one operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sentdist.learning.kernels.band import Band
from sentdist.learning.kernels.interface import AttentionLayout, DropoutMask, Kernels, Launches, QueryKeyValue


def compiled_attention(
    kernels: Kernels,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    boundaries: Tensor,
    scale: float,
    p: float,
    distances: Tensor | None = None,
    band: Band | None = None,
    launches: Launches = (),
) -> Tensor:
    """softmax(q kᵀ · scale + distances) v within each sentence and band, (T, H, head width), each weight dropped with probability `p`.

    boundaries: (S + 1,) int32. distances, band: see `AttentionLayout`. launches: for kernels in Triton. No weights are kept: memory grows
    with T, not with the squares of lengths. Seeds of masks are drawn from the device's default generator, so a recomputed pass draws them
    again.
    """
    num_heads, width = query.shape[1:]
    layout = AttentionLayout(
        boundaries=boundaries, num_heads=num_heads, head_width=width, scale=scale, distances=distances, band=band, launches=launches
    )  # fmt: skip
    (dropout_mask,) = kernels.draw_dropout_masks([p], query.device)
    rows = (states.reshape(len(query), num_heads * width).contiguous() for states in (query, key, value))
    context: Tensor = _Attention.apply(*rows, distances, kernels, layout, dropout_mask, torch.is_grad_enabled())
    return context.view(query.shape)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        distances: Tensor | None,
        kernels: Kernels,
        layout: AttentionLayout,
        dropout_mask: DropoutMask | None,
        save_for_backward: bool,
    ) -> Tensor:
        """distances: the layout's, given once more for their gradient."""
        qkv = QueryKeyValue(query, key, value)
        context, statistics = kernels.attention(qkv, layout, dropout_mask, save_for_backward=save_for_backward)
        ctx.save_for_backward(query, key, value, statistics)
        ctx.kernels, ctx.layout, ctx.dropout_mask = kernels, layout, dropout_mask
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, statistics = ctx.saved_tensors
        out = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        grad_distances = ctx.kernels.attention_backward(
            QueryKeyValue(query, key, value), ctx.layout, ctx.dropout_mask, grad=grad.contiguous(), statistics=statistics, out=out
        )  # fmt: skip
        return *out, grad_distances, None, None, None, None
