"""What kernels in Triton share: the GPU they start on, and masks of dropout by Philox (Salmon et al. 2011)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from sentdist.learning.kernels.values import Mask


def dropout_numbers(mask: Mask | None, unused: Tensor) -> tuple[Tensor, float, int]:
    """What a kernel is told of a mask: its seed, the factor of what is kept, and below which number of 24 bits a value is dropped."""
    if mask is None:
        return unused, 1.0, 0
    assert isinstance(mask.seed, Tensor)
    return mask.seed, 1.0 / (1.0 - mask.p), round(mask.p * 2**24)


def on_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Triton starts kernels on the current GPU."""
    is_there = not tensor.is_cuda or tensor.device.index == torch.cuda.current_device()
    return nullcontext() if is_there else torch.cuda.device(tensor.device)


@triton.jit
def kept_or_not(bits, kept_factor, dropped):  # type: ignore[no-untyped-def]
    """0 where a value is dropped, else 1 / (1 - p)."""
    return tl.where((bits.to(tl.uint32, bitcast=True) >> 8).to(tl.int32) >= dropped, kept_factor, 0.0)


@triton.jit
def row_factors(seed, row, kept_factor, dropped, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """(BLOCK,) factors of the values of a row, counted by row and column, four numbers a draw."""
    draw = tl.arange(0, BLOCK // 4)
    first, second, third, fourth = tl.philox(tl.load(seed), draw, draw * 0 + row, draw * 0, draw * 0)
    bits = tl.reshape(tl.join(tl.join(first, second), tl.join(third, fourth)), (BLOCK,))
    return kept_or_not(bits, kept_factor, dropped)
