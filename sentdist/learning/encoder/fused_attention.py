"""Attention within sentences as one operation of a GPU, dropout included: which of torch's kernels serves which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor

from sentdist.gpus import AMPERE
from sentdist.learning.encoder.private_torch import has_attention

Kernel = Literal["flash", "efficient"]

WIDEST_FLASH_HEAD = 256
MOST_OF_FLASH = 4096  # its derivative keeps 128 rows of float32 a sentence: 0.8 GB at width 384
MOST_SENTENCES = 65_535  # of a call: they are the third dimension of a kernel's grid, and CUDA takes no more there
# Random numbers of a call of "efficient" with dropout, sentences · heads · longest²: its forward pass counts them in 32 bits, its
# backward pass in 64 and signed (torch 2.13, kernel_forward.h and kernel_backward.h), so that behind these the two would draw other masks.
MOST_DRAWS = 2**31


def fused_kernel(device: torch.device, dtype: torch.dtype, head_width: int) -> Kernel | None:
    """The kernel for heads of a width, as wide as its loads must be aligned; None where there is none, as on a CPU, or where
    this torch has it not.

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
) -> Tensor:
    """softmax(q kᵀ · scale) v within each sentence, (T, H, head width), each weight dropped with probability `p`.

    What torch's own nested tensors call, with its derivative: `torch.nn.attention.varlen` has no dropout. No weights are kept, so memory
    grows with T + 128·S, which is what the derivative of `flash` takes, and not with the squares of lengths; masks come from the device's
    default generator, so a recomputed pass draws them again.
    lengths: of the S sentences, on the host. boundaries: (S + 1,) int32 on the device of the tokens. One call of the kernel, or as many as
    its bounds ask for.
    """
    at_once = sentences_at_once(kernel, num_heads=query.shape[1], longest=longest, p=p)
    if len(lengths) <= at_once:
        return _one_call(kernel, query, key, value, boundaries=boundaries, longest=longest, scale=scale, p=p)
    runs = [lengths[first : first + at_once] for first in range(0, len(lengths), at_once)]
    num_tokens = [sum(run) for run in runs]
    parts = zip(*(whole.split(num_tokens) for whole in (query, key, value)), strict=True)  # whose derivative is one copy, not one a part
    return torch.cat([
        # Its own longest: torch refuses one that has more tokens than the call, in the backward pass.
        _one_call(kernel, *states, boundaries=boundaries[first : first + len(run) + 1] - start, longest=max(run), scale=scale, p=p)
        for first, run, start, states in zip(range(0, len(lengths), at_once), runs, accumulate(num_tokens, initial=0), parts, strict=False)
    ])  # fmt: skip


def sentences_at_once(kernel: Kernel, *, num_heads: int, longest: int, p: float) -> int:
    """How many sentences one call may take."""
    if kernel == "flash":
        return MOST_OF_FLASH
    if p == 0.0:
        return MOST_SENTENCES
    return max(1, min(MOST_SENTENCES, MOST_DRAWS // (num_heads * longest**2)))


def _one_call(
    kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, *, boundaries: Tensor, longest: int, scale: float, p: float
) -> Tensor:
    aten: Any = torch.ops.aten
    if kernel == "flash":
        context: Tensor = aten._flash_attention_forward(
            query, key, value, boundaries, boundaries, longest, longest, p, False, False, scale=scale
        )[0]
        return context
    one, keeps = (states[None] for states in (query, key, value)), torch.is_grad_enabled()
    context = aten._efficient_attention_forward(*one, None, boundaries, boundaries, longest, longest, p, 0, keeps, scale=scale)[0]
    return context.squeeze(0)


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
