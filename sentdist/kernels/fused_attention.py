"""Attention within sentences by torch's fused GPU kernels, with dropout: choose the kernel by device, type and width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sentdist.kernels.interface import Band, TritonKernels
from sentdist.kernels.tensors import has_attention, has_windows, inverse, largest_tile, sent_to
from sentdist.machine import AMPERE

Kernel = Literal["flash", "efficient"]

WIDEST_FLASH_HEAD = 256
MOST_OF_FLASH = 4096  # its derivative keeps 128 rows of float32 a sentence: 0.8 GB at width 384
MOST_SENTENCES = 65_535  # of a call: they are the third dimension of a kernel's grid, and CUDA takes no more there
# Random numbers of a call of "efficient" with dropout, sentences · heads · length²: its forward pass counts them in 32 bits, its
# backward pass in 64 and signed (torch 2.13, kernel_forward.h and kernel_backward.h), so that beyond these the masks would differ.
MOST_DRAWS = 2**31


def fused_kernel(device: torch.device, dtype: torch.dtype, head_width: int) -> Kernel | None:
    """Return the kernel for heads of this width, whose loads must be aligned; None if there is none, as on a CPU or in this torch.

    "flash": FlashAttention 2 (Dao 2023, arXiv 2307.08691), in half precision. "efficient": memory-efficient attention
    (Rabe & Staats 2021, arXiv 2112.05682), whose float32 products keep the digits of float32.
    """
    if device.type != "cuda":
        return None
    if dtype in (torch.float16, torch.bfloat16):
        fits = head_width % 8 == 0 and head_width <= WIDEST_FLASH_HEAD
        return "flash" if fits and has_attention("_flash_attention_forward") and _capability(device) >= AMPERE else None
    fits = dtype == torch.float32 and head_width % 4 == 0
    return "efficient" if fits and has_attention("_efficient_attention_forward") else None


def takes_band(kernel: Kernel | None, band: Band | None) -> bool:
    """Whether that kernel supports the band. The derivative of "efficient" ignores its window (torch 2.13, derivatives.yaml), so only
    bands without one are allowed.
    """
    if kernel is None or band is None or band.is_whole_past:
        return True
    return kernel == "flash" and has_windows()


def longest_supported(device: torch.device, dtype: torch.dtype, head_width: int) -> int:
    """Return the longest sentence for the Triton kernels (kernels/triton_attention.py); 0 without Triton or on a GPU older than Ampere."""
    if device.type != "cuda" or not _may_run_triton(device):
        return 0
    return largest_tile(head_width, dtype)


def why_kernels_unavailable(device: torch.device) -> str | None:
    """Return why the Triton kernels, for short sentences, do not run on this GPU; None if they do."""
    if not _may_run_triton(device):
        return (
            "Triton is not installed" if not _has_triton() else f"{torch.cuda.get_device_name(device)} is not an NVIDIA GPU from Ampere on"
        )
    return load_triton_kernels().why_unavailable(device)


def _may_run_triton(device: torch.device) -> bool:
    return _has_triton() and torch.version.hip is None and _capability(device) >= AMPERE


def fused_attention(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Sequence[int],
    boundaries: Tensor,
    longest: int,
    scale: float,
    p: float,
    band: Band | None = None,
) -> Tensor:
    """softmax(q kᵀ · scale) v within each sentence and band, (T, H, head width), each weight dropped with probability `p`.

    Calls the kernels of torch's nested tensors, with their derivative: `torch.nn.attention.varlen` has no dropout. No weights are kept, so
    memory grows with T + 128·S for the derivative of `flash`; that of `efficient` temporarily takes 16 KiB for each sentence, head and 64
    tokens of the longest. Masks come from the device's default generator, so a recomputed pass draws them again.
    One call of the kernel, or as many as its limits need. p: must be 0 for "efficient", which uses `dropped_attention` instead.
    Shapes: query (T, H, head width); key and value with as many heads, or for "flash" a divisor of H; boundaries (S + 1,) int32, of the S
        `lengths` on the host.
    """
    assert kernel == "flash" or p == 0.0, "with boundaries, that kernel's derivative draws other masks"
    at_once = MOST_OF_FLASH if kernel == "flash" else MOST_SENTENCES
    if len(lengths) <= at_once:
        return _one_call(kernel, query, key, value, boundaries=boundaries, longest=longest, scale=scale, p=p, band=band)
    runs = [lengths[first : first + at_once] for first in range(0, len(lengths), at_once)]
    num_tokens = [sum(run) for run in runs]
    parts = zip(*(whole.split(num_tokens) for whole in (query, key, value)), strict=True)  # whose derivative is one copy, not one a part
    return torch.cat([
        # Its own longest: torch refuses one that has more tokens than the call, in the backward pass.
        _one_call(
            kernel, *states, boundaries=boundaries[first : first + len(run) + 1] - start, longest=max(run), scale=scale, p=p, band=band
        )
        for first, run, start, states in zip(range(0, len(lengths), at_once), runs, accumulate(num_tokens, initial=0), parts, strict=False)
    ])  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ByLength:
    """The sentences of a flat tensor by rising length, prepared once per step and read by every layer.

    Args:
        runs: (number of sentences, their length) of each call.
        tokens: (T,) the token at each sorted place.
        back: (T,) the inverse.
    """

    runs: tuple[tuple[int, int], ...]  # (number of sentences, their length) of each call
    tokens: Tensor  # (T,) the token at each sorted place
    back: Tensor  # (T,) the inverse


def by_length(lengths: Sequence[int], device: torch.device, *, num_heads: int) -> ByLength:
    """Prepare them: arithmetic on the host, then copies without waiting."""
    length_S = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(length_S, kind="stable")
    sorted_S, start_S = length_S[order], (np.cumsum(length_S) - length_S)[order]
    order_T = np.arange(length_S.sum()) + np.repeat(start_S - (np.cumsum(sorted_S) - sorted_S), sorted_S)
    runs = []
    for length, count in zip(*(found.tolist() for found in np.unique(sorted_S, return_counts=True)), strict=True):
        at_once = max(1, min(MOST_SENTENCES, MOST_DRAWS // (num_heads * length**2)))
        runs += [(min(at_once, count - first), length) for first in range(0, count, at_once)]
    tokens, back = (sent_to(torch.from_numpy(places_T), device) for places_T in (order_T, inverse(order_T)))
    return ByLength(runs=tuple(runs), tokens=tokens, back=back)


def dropped_attention(
    query: Tensor, key: Tensor, value: Tensor, sentences: ByLength, *, scale: float, p: float, band: Band | None = None
) -> Tensor:
    """Like `fused_attention` by "efficient", each weight dropped with probability `p`: one call per length, without boundaries.

    With boundaries, that kernel counts random numbers from 0 for every sentence and head in its forward pass, but from the place of
    each in its backward pass, so that masks differ and gradients are wrong. See torch's sources from 2023 to 2026:
    `_efficient_attention_forward` sets max_seqlen_k to 0, kernel_forward.h multiplies by it, kernel_backward.h by the longest.
    """
    sizes = [count * length for count, length in sentences.runs]
    parts = zip(*(whole.index_select(0, sentences.tokens).split(sizes) for whole in (query, key, value)), strict=True)
    contexts = []
    for part, run in zip(parts, sentences.runs, strict=True):
        query, key, value = (states.unflatten(0, run) for states in part)
        contexts.append(_efficient(query, key, value, None, None, p, scale, band).flatten(0, 1))
    return torch.cat(contexts).index_select(0, sentences.back)


def _one_call(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    boundaries: Tensor,
    longest: int,
    scale: float,
    p: float,
    band: Band | None,
) -> Tensor:
    if kernel == "efficient":
        return _efficient(query[None], key[None], value[None], boundaries, longest, p, scale, band).squeeze(0)
    aten: Any = torch.ops.aten
    is_causal = band is not None and band.after == 0
    windows: dict[str, int] = {}
    if band is not None and not band.is_whole_past:  # -1: no bound
        before, after = (-1 if reach is None else reach for reach in (band.before, band.after))
        windows = {"window_size_left": before, "window_size_right": after}
    context: Tensor = aten._flash_attention_forward(
        query, key, value, boundaries, boundaries, longest, longest, p, is_causal, False, scale=scale, **windows
    )[0]
    return context


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor | None, longest: int | None, p: float, scale: float, band: Band | None
) -> Tensor:
    """Return (n, L, H, head width) for n sentences of one length, or for one that `boundaries` split."""
    forward, keeps = torch.ops.aten._efficient_attention_forward, torch.is_grad_enabled()
    mask = 0 if band is None else 1  # of torch's CustomMaskType: none, or causal from the first token of each sentence
    context: Tensor = forward(query, key, value, None, boundaries, boundaries, longest, longest, p, mask, keeps, scale=scale)[0]
    return context


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


@cache
def load_triton_kernels() -> TritonKernels:
    """Return the module; cached, since each layer asks in each step and an import statement takes a microsecond even then."""
    from sentdist.kernels import triton_kernels

    return triton_kernels
