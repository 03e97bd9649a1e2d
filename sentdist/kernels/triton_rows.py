"""Row-wise Triton kernels: bias, dropout, residual and layer norm (Ba et al. 2016, arXiv 1607.06450); bias and GELU.

GELU is by the error function (Hendrycks & Gimpel 2016, arXiv 1606.08415). Sums over rows are taken in parts, one per program, which the
caller adds up in a fixed order, so that two runs have the same digits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sentdist.kernels.interface import DropoutMask


def dropout_arguments(dropout_mask: DropoutMask | None, unused: Tensor) -> tuple[Tensor, float, int]:
    """Return a mask's kernel arguments: seed, factor of kept values, and the 24-bit threshold below which a value is dropped."""
    if dropout_mask is None:
        return unused, 1.0, 0
    assert isinstance(dropout_mask.seed, Tensor)
    return dropout_mask.seed, 1.0 / (1.0 - dropout_mask.p), round(dropout_mask.p * 2**24)


@triton.jit
def dropout_factors(bits, kept_factor, threshold):  # type: ignore[no-untyped-def]
    """Return 0 where a value is dropped, else 1 / (1 - p)."""
    return tl.where((bits.to(tl.uint32, bitcast=True) >> 8).to(tl.int32) >= threshold, kept_factor, 0.0)


@triton.jit
def row_dropout_factors(seed, row, kept_factor, threshold, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """(BLOCK,) factors of the values of a row, counted by row and column, four numbers per draw."""
    draw = tl.arange(0, BLOCK // 4)
    first, second, third, fourth = tl.philox(tl.load(seed), draw, draw * 0 + row, draw * 0, draw * 0)
    bits = tl.reshape(tl.join(tl.join(first, second), tl.join(third, fourth)), (BLOCK,))
    return dropout_factors(bits, kept_factor, threshold)


# Numbers that vary by batch: Triton would compile separate kernels for multiples of 16.
jit: Any = triton.jit(
    do_not_specialize=["threshold", "num_rows", "rows_per_program"], do_not_specialize_on_alignment=["seed", "parts", "inverse_std_T"]
)


@jit
def add_norm(  # type: ignore[no-untyped-def]
    product_T, bias, residual_T, norm_weight, norm_bias, out_T, rounded_T, normalized_T, inverse_std_T, seed, kept_factor, threshold,
    epsilon,
    width,
    BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_DROPOUT: tl.constexpr, ROUNDS: tl.constexpr, SAVES: tl.constexpr,
):  # fmt: skip
    """Process one row per program."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside, place = column < width, row.to(tl.int64) * width + column
    value = tl.load(product_T + place, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias + column, mask=inside, other=0.0)
    if HAS_DROPOUT:
        value *= row_dropout_factors(seed, row, kept_factor, threshold, BLOCK)
    value += tl.load(residual_T + place, mask=inside, other=0.0)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / width, 0.0)
    inverse_std = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + epsilon)
    normalized = centred * inverse_std
    out = normalized * tl.load(norm_weight + column, mask=inside, other=0.0) + tl.load(norm_bias + column, mask=inside, other=0.0)
    tl.store(out_T + place, out, mask=inside)
    if ROUNDS:
        tl.store(rounded_T + place, out.to(rounded_T.dtype.element_ty), mask=inside)
    if SAVES:
        tl.store(normalized_T + place, normalized, mask=inside)
        tl.store(inverse_std_T + row, inverse_std)


@jit
def add_norm_backward(  # type: ignore[no-untyped-def]
    grad_T, grad_product_input_T, normalized_T, inverse_std_T, norm_weight, norm_bias, grad_residual_T, grad_product_T, recomputed_T, parts,
    seed,
    kept_factor, threshold, num_rows, rows_per_program, width,
    BLOCK: tl.constexpr, HAS_PRODUCT_INPUT: tl.constexpr, HAS_DROPOUT: tl.constexpr, RECOMPUTES: tl.constexpr,
):  # fmt: skip
    """Process `rows_per_program` rows per program. parts: (programs, 3, width), of bias, norm's weight and norm's bias."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    scale = tl.load(norm_weight + column, mask=inside, other=0.0)
    offset = tl.load(norm_bias + column, mask=inside, other=0.0) if RECOMPUTES else scale
    grad_bias, grad_norm_weight, grad_norm_bias = scale * 0.0, scale * 0.0, scale * 0.0
    first = tl.program_id(0) * rows_per_program
    for row in range(first, tl.minimum(first + rows_per_program, num_rows)):
        place = tl.cast(row, tl.int64) * width + column
        grad_out = tl.load(grad_T + place, mask=inside, other=0.0)
        if HAS_PRODUCT_INPUT:
            grad_out += tl.load(grad_product_input_T + place, mask=inside, other=0.0).to(tl.float32)
        normalized = tl.load(normalized_T + place, mask=inside, other=0.0)
        grad_norm_weight += grad_out * normalized
        grad_norm_bias += grad_out
        if RECOMPUTES:
            tl.store(recomputed_T + place, (normalized * scale + offset).to(recomputed_T.dtype.element_ty), mask=inside)
        scaled = grad_out * scale
        mean, slope = tl.sum(scaled, axis=0) / width, tl.sum(scaled * normalized, axis=0) / width
        value = (scaled - mean - normalized * slope) * tl.load(inverse_std_T + row)
        tl.store(grad_residual_T + place, value, mask=inside)
        if HAS_DROPOUT:
            value *= row_dropout_factors(seed, row, kept_factor, threshold, BLOCK)
        tl.store(grad_product_T + place, value.to(grad_product_T.dtype.element_ty), mask=inside)
        grad_bias += value
    part = parts + tl.program_id(0) * 3 * width + column
    tl.store(part, grad_bias, mask=inside)
    tl.store(part + width, grad_norm_weight, mask=inside)
    tl.store(part + 2 * width, grad_norm_bias, mask=inside)


@triton.jit
def _normal_cdf(x):  # type: ignore[no-untyped-def]
    """Cumulative distribution function of the standard normal distribution."""
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))


@jit
def gelu(product_T, bias, out_T, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Process a tile of ROWS × COLUMNS per program."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    x = tl.load(product_T + place, mask=inside, other=0.0).to(tl.float32) + tl.load(bias + column, mask=column < width, other=0.0)[None, :]
    tl.store(out_T + place, (x * _normal_cdf(x)).to(out_T.dtype.element_ty), mask=inside)


@jit
def gelu_backward(  # type: ignore[no-untyped-def]
    product_T, bias, grad_T, recomputed_T, parts, num_rows, rows_per_program, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Process `rows_per_program` rows, a multiple of ROWS, and COLUMNS columns per program. parts: (programs, width), of the bias."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    bias_row = tl.load(bias + column, mask=column < width, other=0.0)[None, :]
    grad_bias = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = tl.program_id(0) * rows_per_program
    for start in range(first, tl.minimum(first + rows_per_program, num_rows), ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & (column < width)[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        x = tl.load(product_T + place, mask=inside, other=0.0).to(tl.float32) + bias_row
        cdf = _normal_cdf(x)
        tl.store(recomputed_T + place, (x * cdf).to(recomputed_T.dtype.element_ty), mask=inside)
        slope = cdf + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
        value = tl.load(grad_T + place, mask=inside, other=0.0).to(tl.float32) * slope
        tl.store(grad_T + place, value.to(grad_T.dtype.element_ty), mask=inside)
        grad_bias += value
    tl.store(parts + tl.program_id(0) * width + column, tl.sum(grad_bias, axis=0), mask=column < width)


def device_guard(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context that makes the tensor's GPU current: Triton starts kernels there."""
    is_current = not tensor.is_cuda or tensor.device.index == torch.cuda.current_device()
    return nullcontext() if is_current else torch.cuda.device(tensor.device)


def float32_precision() -> str:
    """Return how Triton multiplies float32: in TensorFloat-32, or in three such products, which keep the digits of float32."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
