"""Attention within each sentence of a flat tensor without padding: choose the fastest kernel for device, type and lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface

from sentdist.kernels import cpp_kernels, longest_tile
from sentdist.kernels.grouped_attention import LengthGroups, grouped_attention, length_groups
from sentdist.kernels.interface import (
    AttentionLayout,
    Band,
    DropoutMask,
    Kernels,
    Launches,
    QueryKeyValue,
    band_of,
)
from sentdist.kernels.tensors import head_scales, inverse, is_faster_than_torch, sent_to, tile_launches
from sentdist.machine import AMPERE


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


WIDEST_FLASH_HEAD = 256
MOST_OF_FLASH = 4096  # its derivative keeps 128 rows of float32 a sentence: 0.8 GB at width 384
# How `fused_attention` calls it: the first arguments by position, the others by name.
_ARGUMENTS = ["query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask"]
_NAMED = {"scale", "window_size_left", "window_size_right"}


def has_flash(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Whether torch has FlashAttention 2 (Dao 2023, arXiv 2307.08691) here for half precision and heads of this width."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    return head_width % 8 == 0 and head_width <= WIDEST_FLASH_HEAD and _has_operation() and _capability(device) >= AMPERE


@cache
def _has_operation() -> bool:
    """Whether torch has this private operation, with the arguments used here."""
    operation: Any = getattr(torch.ops.aten, "_flash_attention_forward", None)
    found = [] if operation is None else [argument.name for argument in operation.default._schema.arguments]
    return found[: len(_ARGUMENTS)] == _ARGUMENTS and set(found) >= _NAMED


def longest_supported(device: torch.device, dtype: torch.dtype, head_width: int) -> int:
    """Return the longest sentence for the Triton kernels here, in tokens; 0 where they do not run."""
    if device.type != "cuda" or why_kernels_unavailable(device) is not None:
        return 0
    tile = longest_tile(head_width, dtype.itemsize)
    return tile if _has_large_tiles(device) else tile // 2


def why_kernels_unavailable(device: torch.device) -> str | None:
    """Return why the Triton kernels, for short sentences, do not run on this GPU; None if they do."""
    if not _has_triton():
        return "Triton is not installed"
    if torch.version.hip is not None or _capability(device) < AMPERE:
        return f"{torch.cuda.get_device_name(device)} is not an NVIDIA GPU from Ampere on"
    reason: str | None = load_triton_kernels().why_unavailable(device)
    return reason


@cache
def _has_large_tiles(device: torch.device) -> bool:
    """Whether a multiprocessor has the memory for the largest tile: 163 KiB in an A100, 227 in an H100, 99 in an A10 or L4."""
    properties: Any = torch.cuda.get_device_properties(device)
    return bool(properties.shared_memory_per_block_optin >= 160 * 2**10)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Sequence[int],
    boundaries: Tensor,
    scale: float,
    p: float,
    band: Band | None = None,
) -> Tensor:
    """softmax(q kᵀ · scale) v within each sentence and band, (T, H, head width), each weight dropped with probability `p`.

    Calls FlashAttention with its derivative: `torch.nn.attention.varlen` has no dropout. No weights are kept, so memory grows with
    T + 128·S. Masks come from the device's default generator, so a recomputed pass draws them again.
    Shapes: query (T, H, head width); key and value with as many heads, or a divisor of H; boundaries (S + 1,) int32, of the S `lengths` on
        the host.
    """
    aten: Any = torch.ops.aten
    is_causal = band is not None and band.after == 0
    reach = (None, None) if band is None or band.is_whole_past else (band.before, band.after)
    left, right = (-1 if one is None else one for one in reach)  # -1: no bound
    runs = [lengths[first : first + MOST_OF_FLASH] for first in range(0, len(lengths), MOST_OF_FLASH)]
    num_tokens = [sum(run) for run in runs]
    parts = zip(*(whole.split(num_tokens) for whole in (query, key, value)), strict=True)  # whose derivative is one copy, not one a part
    contexts, first = [], 0
    for run, start, states in zip(runs, accumulate(num_tokens, initial=0), parts, strict=False):
        bounds = boundaries[first : first + len(run) + 1] - start if start else boundaries[: len(run) + 1]
        # Its own longest: torch refuses one that has more tokens than the call, in the backward pass.
        context = aten._flash_attention_forward(
            *states, bounds, bounds, max(run), max(run), p, is_causal, False, scale=scale, window_size_left=left, window_size_right=right
        )[0]
        contexts.append(context)
        first += len(run)
    return contexts[0] if len(contexts) == 1 else torch.cat(contexts)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


@cache
def load_triton_kernels() -> Any:
    """Return the module; cached, since each layer asks in each step and an import statement takes a microsecond even then."""
    from sentdist.kernels import triton_kernels

    return triton_kernels


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
    is_in_triton = is_faster and segments.longest <= longest_supported(query.device, query.dtype, width)
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
    split = segments.split(longest_supported(query.device, query.dtype, query.shape[-1]))
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


def register_flat_attention() -> None:
    """Register `FLAT_ATTENTION` with transformers; without a mask function of that name, models pass no mask."""
    AttentionInterface.register(FLAT_ATTENTION, flat_attention)
