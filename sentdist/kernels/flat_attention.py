"""Attention within each sentence of a flat tensor without padding: choose the fastest kernel for device, type and lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface

from sentdist.kernels import TILES, cpp_kernels
from sentdist.kernels.fused_attention import fused_attention, has_flash, load_triton_kernels, longest_supported
from sentdist.kernels.grouped_attention import LengthGroups, grouped_attention, length_groups
from sentdist.kernels.interface import (
    AttentionKernel,
    AttentionLayout,
    Band,
    DropoutMask,
    Kernels,
    Launches,
    QueryKeyValue,
    band_of,
)
from sentdist.kernels.tensors import head_scales, inverse, is_faster_than_torch, sent_to, tile_launches


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
    with T, not with squared lengths. Mask seeds come from the device's default generator, so a recomputed pass draws them again.
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


FLAT_ATTENTION = "sentdist_flat"


@dataclass(frozen=True, kw_only=True)
class Segments:
    """The sentences of a flat tensor, with what the layers of a step derive from them: each part is made once, when first read."""

    lengths: Sequence[int]  # of the S sentences
    boundaries: Tensor  # (S + 1,) int32
    num_heads: int  # H, of queries
    head_width: int
    is_causal: bool = False  # tokens do not see later ones
    distances: Tensor | None = None  # see `AttentionLayout`
    _splits: dict[int, SplitSegments] = field(default_factory=dict, init=False, compare=False)

    @property
    def num_sentences(self) -> int:
        return len(self.lengths)

    @cached_property
    def longest(self) -> int:
        return max(self.lengths)

    @cached_property
    def grouped(self) -> LengthGroups:
        """Groups for torch's attention. GPU kernels never read it: for 12,000 sentences making it takes longer than their step."""
        return length_groups(self.lengths, self.boundaries.device, num_heads=self.num_heads)

    @cached_property
    def launches(self) -> Launches:
        """For kernels in Triton, which take sentences of up to `TILES[-1]` tokens."""
        return tile_launches(self.lengths, self.boundaries.device, num_heads=self.num_heads)

    @cached_property
    def tiles(self) -> tuple[int, ...]:
        return tuple(tile for tile, _ in self.launches)

    def split(self, longest: int) -> SplitSegments | None:
        """Return the sentences of up to `longest` tokens and the others, made once per step; None unless there are both."""
        if not min(self.lengths) <= longest < self.longest:
            return None
        if longest not in self._splits:
            self._splits[longest] = _split(self, longest)
        return self._splits[longest]


def distances_within(longest: int, embedding: nn.Embedding, bucket_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the (H, 2 · longest - 1) distances of `Segments` from a table with one number per head and bucket. bucket_of: of distances."""
    distances = torch.arange(1 - longest, longest, device=embedding.weight.device)
    of_heads: Tensor = embedding(bucket_of(distances))
    return of_heads.t().contiguous()


@dataclass(frozen=True, kw_only=True)
class SplitSegments:
    """The sentences of a flat tensor in two parts."""

    short: Segments
    long: Segments
    tokens: Tensor  # (T,) those of short sentences, then those of long ones
    back: Tensor  # (T,) the inverse


def _split(segments: Segments, longest: int) -> SplitSegments:
    """Split at `longest` tokens: arithmetic on the host, then copies without waiting."""
    device = segments.boundaries.device
    length_S = np.asarray(segments.lengths, dtype=np.int64)
    is_long_S = length_S > longest
    order_T = np.argsort(np.repeat(is_long_S, length_S), kind="stable")

    def of(lengths: np.ndarray) -> Segments:
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return replace(segments, lengths=lengths.tolist(), boundaries=sent_to(torch.from_numpy(bounds), device))

    tokens, back = (sent_to(torch.from_numpy(places_T), device) for places_T in (order_T, inverse(order_T)))
    return SplitSegments(short=of(length_S[~is_long_S]), long=of(length_S[is_long_S]), tokens=tokens, back=back)


def flat_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    segments: Segments,
    scaling: float | None = None,
    dropout: float = 0.0,
    drophead: float = 0.0,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attend within sentences; the signature of transformers' AttentionInterface. Returns the context (1, T, H, head width), no weights.

    dropout of attention probabilities and drophead of whole heads act in training only. sliding_window: see `band_of`.
    Shapes: query, key and value (1, H, T, head width); keys and values have H heads or a divisor of H.
    """
    num_heads, num_tokens, width = query.shape[1:]
    p = dropout if module.training else 0.0
    scale = width**-0.5 if scaling is None else scaling
    # Under autocast rotated queries and keys are in the type of their angles, float32.
    query, key, value = (states.to(value.dtype).squeeze(0).transpose(0, 1) for states in (query, key, value))
    band = band_of(is_causal=segments.is_causal, window=sliding_window, longest=segments.longest)
    context = _attend(segments, query, key, value, band, scale=scale, p=p)
    if drophead > 0.0 and module.training:
        scales_SH = head_scales(segments.num_sentences, num_heads, drophead, device=context.device).to(context.dtype)
        scales_TH = scales_SH.repeat_interleave(segments.boundaries.diff(), dim=0, output_size=num_tokens)
        context = context * scales_TH[:, :, None]
    return context.unsqueeze(0), None


class _AttentionSettings(NamedTuple):
    """What attention computes of a layer's states. p: of dropout."""

    band: Band | None
    scale: float
    p: float


def _attend(segments: Segments, query: Tensor, key: Tensor, value: Tensor, band: Band | None, *, scale: float, p: float) -> Tensor:
    """Return (T, H, head width), by the fastest kernel for these numbers and this band; else by torch in groups of similar length."""
    num_heads, width = query.shape[1:]
    has_kernel = segments.distances is None and has_flash(query.device, query.dtype, width)
    settings = _AttentionSettings(band, scale, p)
    is_faster = not has_kernel or is_faster_than_torch(query, num_sentences=segments.num_sentences)
    is_in_triton = is_faster and triton_supports(segments, _own_kernel(segments, query, settings))
    if key.shape[1] != num_heads and (is_in_triton or not has_kernel):
        key, value = (_repeated(states, num_heads) for states in (key, value))
    if cpp_kernels.supports_attention(query, key, value):
        return _compiled_attention(cpp_kernels, segments, query, key, value, settings)
    if is_in_triton:
        return _compiled_attention(load_triton_kernels(), segments, query, key, value, settings, launches=segments.launches)
    if has_kernel:
        return fused_attention(query, key, value, lengths=segments.lengths, boundaries=segments.boundaries, scale=scale, p=p, band=band)
    return _split_attention(segments, query, key, value, settings)


def _repeated(states: Tensor, num_heads: int) -> Tensor:
    """Return (T, num_heads, head width) of keys or values that several heads share, repeated for each query head."""
    num_tokens, num_shared, width = states.shape
    return states[:, :, None].expand(-1, -1, num_heads // num_shared, -1).reshape(num_tokens, num_heads, width)


def _split_attention(segments: Segments, query: Tensor, key: Tensor, value: Tensor, settings: _AttentionSettings) -> Tensor:
    """Attend by Triton within the sentences that are short enough for it, within the others in groups."""
    split = segments.split(_longest_in_triton(_own_kernel(segments, query, settings)))
    if split is None:
        return _grouped_attention(segments, query, key, value, settings)
    num_tokens = [sum(split.short.lengths), sum(split.long.lengths)]
    states = (whole.index_select(0, split.tokens).split(num_tokens) for whole in (query, key, value))
    (query, long_query), (key, long_key), (value, long_value) = states
    contexts = (
        _compiled_attention(load_triton_kernels(), split.short, query, key, value, settings, launches=split.short.launches),
        _grouped_attention(split.long, long_query, long_key, long_value, settings),
    )
    return torch.cat(contexts).index_select(0, split.back)


def _grouped_attention(segments: Segments, query: Tensor, key: Tensor, value: Tensor, settings: _AttentionSettings) -> Tensor:
    return grouped_attention(query, key, value, segments.grouped, **settings._asdict(), distances=segments.distances)


def _compiled_attention(
    kernels: Kernels, segments: Segments, query: Tensor, key: Tensor, value: Tensor, settings: _AttentionSettings, launches: Launches = ()
) -> Tensor:
    return compiled_attention(
        kernels, query, key, value, boundaries=segments.boundaries, scale=settings.scale, p=settings.p, distances=segments.distances,
        band=settings.band, launches=launches,
    )  # fmt: skip


def _own_kernel(segments: Segments, query: Tensor, settings: _AttentionSettings) -> AttentionKernel:
    return AttentionKernel(
        query.device, query.dtype, query.shape[-1], has_dropout=settings.p > 0.0, has_backward=torch.is_grad_enabled(),
        has_distances=segments.distances is not None, has_band=settings.band is not None,
    )  # fmt: skip


def triton_supports(segments: Segments, kernel: AttentionKernel) -> bool:
    """Whether this attention kernel takes all of these sentences and runs on this machine."""
    if segments.longest > longest_supported(kernel.device, kernel.dtype, kernel.head_width):
        return False
    return load_triton_kernels().can_run_attention(kernel, segments.tiles)


def _longest_in_triton(kernel: AttentionKernel) -> int:
    """Return the longest sentence it takes on this machine, in tokens: some GPUs' multiprocessors have no room for the largest tile."""
    limit = longest_supported(kernel.device, kernel.dtype, kernel.head_width)
    return next((tile for tile in reversed(TILES) if tile <= limit and load_triton_kernels().can_run_attention(kernel, (tile,))), 0)


def register_flat_attention() -> None:
    """Register `FLAT_ATTENTION` with transformers; without a mask function of that name, models pass no mask."""
    AttentionInterface.register(FLAT_ATTENTION, flat_attention)
