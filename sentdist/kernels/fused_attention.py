"""Attention on a GPU: torch's FlashAttention over flat sentences, with dropout, and where the Triton kernels run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from sentdist.kernels.interface import Band, TritonKernels
from sentdist.kernels.tensors import largest_tile
from sentdist.machine import AMPERE

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
    """Return the longest sentence for the Triton kernels (kernels/triton_attention.py); 0 without Triton or on a GPU older than Ampere."""
    if device.type != "cuda" or not _may_run_triton(device):
        return 0
    return largest_tile(head_width, dtype)


def why_kernels_unavailable(device: torch.device) -> str | None:
    """Return why the Triton kernels, for short sentences, do not run on this GPU; None if they do."""
    if not _has_triton():
        return "Triton is not installed"
    if not _may_run_triton(device):
        return f"{torch.cuda.get_device_name(device)} is not an NVIDIA GPU from Ampere on"
    return load_triton_kernels().why_unavailable(device)


def _may_run_triton(device: torch.device) -> bool:
    return _has_triton() and torch.version.hip is None and _capability(device) >= AMPERE


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
def load_triton_kernels() -> TritonKernels:
    """Return the module; cached, since each layer asks in each step and an import statement takes a microsecond even then."""
    from sentdist.kernels import triton_kernels

    return triton_kernels
