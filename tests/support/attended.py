"""Attention of random sentences on some device, and what holds of it however masks are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from sentdist.kernels.flat_attention import Segments, flat_attention

# 12 heads of 512² weights: behind 1,365 sentences random numbers are more than 32 bits count.
MANY = (*[3] * 700, 512, *[2] * 699)

# What a layer may see: as `attended` takes it.
BANDS: dict[str, Any] = {
    "causal": {"is_causal": True},
    "causal-window": {"is_causal": True, "window": 4},
    "window": {"window": 3},
    "wide-window": {"window": 40},
    "whole": {},
}


MASKED = (5, 16, 1, 12, 30, 64)  # tokens of sentences whose masks are read


@dataclass(frozen=True, kw_only=True)
class Attended:
    """On the host, (T, H, head width). grad: of some loss by the context. gradients: by query, key and value, and (H, 2R - 1) by the
    distances where there are some."""

    lengths: Sequence[int]
    context: Tensor
    grad: Tensor
    value: Tensor
    gradients: tuple[Tensor, ...]

    def disagreement(self) -> Tensor:
        """(S,) of each sentence, how far the masks of forward and backward pass are from one another, against the size of its numbers.

        For one mask the context is linear in the values, so <grad, context> is <gradient by the values, values>.
        """
        sentence_T = torch.repeat_interleave(torch.tensor(self.lengths))
        forward, backward = self.grad * self.context, self.gradients[2] * self.value
        sums = (forward.sum(dim=(1, 2)) - backward.sum(dim=(1, 2)), forward.square().sum(dim=(1, 2)))
        off, squares = (torch.zeros(len(self.lengths)).index_add_(0, sentence_T, one) for one in sums)
        return off.abs() / squares.sqrt()


def attended(
    lengths: Sequence[int],
    *,
    num_heads: int,
    width: int,
    p: float,
    dtype: torch.dtype,
    device: torch.device,
    rounded_to: torch.dtype = torch.float32,
    num_key_heads: int | None = None,
    is_causal: bool = False,
    window: int | None = None,
    has_distances: bool = False,
    has_backward: bool = True,
) -> Attended:
    """As a layer in training calls it, with dropout `p`. rounded_to: which numbers the sentences have, whatever computes with them.
    num_key_heads: of keys and values; None: as many as of queries. has_distances: whether scores are moved by the tokens' distance.
    has_backward: whether there are gradients, else there are zeros."""
    generator, num_tokens = torch.Generator().manual_seed(0), sum(lengths)
    heads = [num_heads, *[num_key_heads or num_heads] * 2]
    host = [torch.randn(1, count, num_tokens, width, generator=generator).to(rounded_to).to(dtype) for count in heads]
    grad = torch.randn(1, num_tokens, num_heads, width, generator=generator).to(rounded_to).to(dtype)
    states = [one.to(device).requires_grad_() for one in host]
    bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)
    distances = torch.randn(num_heads, 2 * max(lengths) + 5, generator=generator).to(device).requires_grad_() if has_distances else None
    segments = Segments(
        lengths=lengths, boundaries=bounds, num_heads=num_heads, head_width=width, is_causal=is_causal, distances=distances
    )  # fmt: skip
    context, _ = flat_attention(nn.Identity().train(), *states, None, segments=segments, dropout=p, sliding_window=window)
    leaves = states if distances is None else [*states, distances]
    found = torch.autograd.grad(context, leaves, grad.to(device)) if has_backward else [torch.zeros_like(one) for one in leaves]
    return Attended(
        lengths=lengths, context=context.detach().cpu().float().squeeze(0), grad=grad.float().squeeze(0),
        value=host[2].detach().float().squeeze(0).transpose(0, 1),
        gradients=(*(one.cpu().float().squeeze(0).transpose(0, 1) for one in found[:3]), *(one.cpu() for one in found[3:])),
    )  # fmt: skip


def off_by_masks(attend: Callable[[Tensor, Tensor, Tensor], Tensor], *, width: int, dtype: torch.dtype, device: torch.device) -> float:
    """How far gradients are from those of attention with the very masks that `attend` draws: the same at each call, two heads, scale 1.

    Masks are read from values that are unit vectors, whose context is the weights themselves. Its sentences: those of MASKED up to `width`.
    """
    lengths = [length for length in MASKED if length <= width]
    generator, num_tokens = torch.Generator().manual_seed(0), sum(lengths)
    numbers = [torch.randn(num_tokens, 2, width, generator=generator).to(dtype) for _ in range(4)]
    query, key, value = (one.to(device).requires_grad_() for one in numbers[:3])
    units = torch.cat([torch.eye(length, width) for length in lengths])[:, None].expand(-1, 2, -1).to(dtype)
    applied = attend(query, key, units.to(device)).detach().cpu().double()
    found = torch.autograd.grad(attend(query, key, value), (query, key, value), numbers[3].to(device))
    states = [one.double().requires_grad_() for one in numbers[:3]]
    contexts = []
    for rows in zip(applied.split(lengths), *(one.split(lengths) for one in states), strict=True):
        applied_LHL, query_LHW, key_LHW, value_LHW = rows
        weights = torch.einsum("ihw,jhw->ihj", query_LHW, key_LHW).softmax(dim=-1)
        kept = applied_LHL[..., : weights.shape[-1]] / weights.detach()
        contexts.append(torch.einsum("ihj,jhw->ihw", weights * kept, value_LHW))
    expected = torch.autograd.grad(torch.cat(contexts), states, numbers[3].double())
    return max(float((one.cpu().double() - other).norm() / other.norm()) for one, other in zip(found, expected, strict=True))
