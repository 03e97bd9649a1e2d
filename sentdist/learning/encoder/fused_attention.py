"""Attention within sentences as one operation of a GPU, dropout included: which of torch's kernels serves which numbers."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from sentdist.learning.encoder.private_torch import has_attention

Kernel = Literal["flash", "efficient"]

FLASH_CAPABILITY = (8, 0)  # Ampere
WIDEST_FLASH_HEAD = 256


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
        return "flash" if fits and has_attention("_flash_attention_forward") and _capability(device) >= FLASH_CAPABILITY else None
    fits = dtype == torch.float32 and head_width % 4 == 0
    return "efficient" if fits and has_attention("_efficient_attention_forward") else None


def fused_attention(
    kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, *, boundaries: Tensor, longest: int, scale: float, p: float
) -> Tensor:
    """softmax(q kᵀ · scale) v within each sentence, (T, H, head width), each weight dropped with probability `p`.

    What torch's own nested tensors call, with its derivative: `torch.nn.attention.varlen` has no dropout. No weights are kept, so memory
    grows with T and not with the squares of lengths; masks come from the device's default generator, so a recomputed pass draws them again.
    boundaries: (S + 1,) int32 on the device of the tokens.
    """
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
