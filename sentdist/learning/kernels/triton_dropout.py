"""Dropout in Triton kernels: masks by Philox (Salmon et al. 2011) from a seed and a value's place."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sentdist.learning.kernels.interface import DropoutMask


def dropout_arguments(dropout_mask: DropoutMask | None, unused: Tensor) -> tuple[Tensor, float, int]:
    """What a kernel needs of a mask: its seed, the factor of what is kept, and below which number of 24 bits a value is dropped."""
    if dropout_mask is None:
        return unused, 1.0, 0
    assert isinstance(dropout_mask.seed, Tensor)
    return dropout_mask.seed, 1.0 / (1.0 - dropout_mask.p), round(dropout_mask.p * 2**24)


@triton.jit
def dropout_factors(bits, kept_factor, threshold):  # type: ignore[no-untyped-def]
    """0 where a value is dropped, else 1 / (1 - p)."""
    return tl.where((bits.to(tl.uint32, bitcast=True) >> 8).to(tl.int32) >= threshold, kept_factor, 0.0)


@triton.jit
def row_dropout_factors(seed, row, kept_factor, threshold, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """(BLOCK,) factors of the values of a row, counted by row and column, four numbers a draw."""
    draw = tl.arange(0, BLOCK // 4)
    first, second, third, fourth = tl.philox(tl.load(seed), draw, draw * 0 + row, draw * 0, draw * 0)
    bits = tl.reshape(tl.join(tl.join(first, second), tl.join(third, fourth)), (BLOCK,))
    return dropout_factors(bits, kept_factor, threshold)
