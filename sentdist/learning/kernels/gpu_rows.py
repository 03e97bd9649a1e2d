"""What a transformer layer does to each token by itself, in Triton: bias, dropout, residual and layer norm (Ba et al. 2016, arXiv
1607.06450) in one pass over the rows; bias and GELU by the error function (Hendrycks & Gimpel 2016, arXiv 1606.08415) in another.

Sums over rows are taken in parts, a program each, which the caller adds up: in one order, so that two runs have the same digits.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from sentdist.learning.kernels.gpu_common import row_factors

# Numbers of a batch, of which Triton would make kernels of their own for each multiple of 16.
compiled: Any = triton.jit(
    do_not_specialize=["dropped", "num_rows", "rows_each"], do_not_specialize_on_alignment=["seed", "parts", "inverse_T"]
)


@compiled
def add_norm(  # type: ignore[no-untyped-def]
    product_T, bias, residual_T, weight, shift, out_T, rounded_T, normalized_T, inverse_T, seed, kept_factor, dropped, epsilon, width,
    BLOCK: tl.constexpr, ADDS: tl.constexpr, DROPS: tl.constexpr, ROUNDS: tl.constexpr, KEEPS: tl.constexpr,
):  # fmt: skip
    """A row a program."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside, place = column < width, row.to(tl.int64) * width + column
    value = tl.load(product_T + place, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        value += tl.load(bias + column, mask=inside, other=0.0)
    if DROPS:
        value *= row_factors(seed, row, kept_factor, dropped, BLOCK)
    value += tl.load(residual_T + place, mask=inside, other=0.0)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / width, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + epsilon)
    normalized = centred * inverse
    out = normalized * tl.load(weight + column, mask=inside, other=0.0) + tl.load(shift + column, mask=inside, other=0.0)
    tl.store(out_T + place, out, mask=inside)
    if ROUNDS:
        tl.store(rounded_T + place, out.to(rounded_T.dtype.element_ty), mask=inside)
    if KEEPS:
        tl.store(normalized_T + place, normalized, mask=inside)
        tl.store(inverse_T + row, inverse)


@compiled
def add_norm_backward(  # type: ignore[no-untyped-def]
    grad_T, more_T, normalized_T, inverse_T, weight, shift, to_residual_T, to_product_T, again_T, parts, seed, kept_factor, dropped, num_rows,
    rows_each, width,
    BLOCK: tl.constexpr, MORE: tl.constexpr, DROPS: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """`rows_each` rows a program. parts: (programs, 3, width), of bias, weight and shift."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    scale = tl.load(weight + column, mask=inside, other=0.0)
    offset = tl.load(shift + column, mask=inside, other=0.0) if AGAIN else scale
    to_bias, to_weight, to_shift = scale * 0.0, scale * 0.0, scale * 0.0
    first = tl.program_id(0) * rows_each
    for row in range(first, tl.minimum(first + rows_each, num_rows)):
        place = tl.cast(row, tl.int64) * width + column
        arrived = tl.load(grad_T + place, mask=inside, other=0.0)
        if MORE:
            arrived += tl.load(more_T + place, mask=inside, other=0.0).to(tl.float32)
        normalized = tl.load(normalized_T + place, mask=inside, other=0.0)
        to_weight += arrived * normalized
        to_shift += arrived
        if AGAIN:
            tl.store(again_T + place, (normalized * scale + offset).to(again_T.dtype.element_ty), mask=inside)
        scaled = arrived * scale
        mean, slope = tl.sum(scaled, axis=0) / width, tl.sum(scaled * normalized, axis=0) / width
        value = (scaled - mean - normalized * slope) * tl.load(inverse_T + row)
        tl.store(to_residual_T + place, value, mask=inside)
        if DROPS:
            value *= row_factors(seed, row, kept_factor, dropped, BLOCK)
        tl.store(to_product_T + place, value.to(to_product_T.dtype.element_ty), mask=inside)
        to_bias += value
    part = parts + tl.program_id(0) * 3 * width + column
    tl.store(part, to_bias, mask=inside)
    tl.store(part + width, to_weight, mask=inside)
    tl.store(part + 2 * width, to_shift, mask=inside)


@triton.jit
def _cumulated(x):  # type: ignore[no-untyped-def]
    """The normal distribution's function."""
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))


@compiled
def gelu(product_T, bias, out_T, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of ROWS × COLUMNS a program."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    x = tl.load(product_T + place, mask=inside, other=0.0).to(tl.float32) + tl.load(bias + column, mask=column < width, other=0.0)[None, :]
    tl.store(out_T + place, (x * _cumulated(x)).to(out_T.dtype.element_ty), mask=inside)


@compiled
def gelu_backward(  # type: ignore[no-untyped-def]
    product_T, bias, grad_T, again_T, parts, num_rows, rows_each, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """`rows_each` rows, a multiple of ROWS, and COLUMNS columns a program. parts: (programs, width), of the bias."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    shift = tl.load(bias + column, mask=column < width, other=0.0)[None, :]
    to_bias = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = tl.program_id(0) * rows_each
    for start in range(first, tl.minimum(first + rows_each, num_rows), ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & (column < width)[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        x = tl.load(product_T + place, mask=inside, other=0.0).to(tl.float32) + shift
        cumulated = _cumulated(x)
        tl.store(again_T + place, (x * cumulated).to(again_T.dtype.element_ty), mask=inside)
        slope = cumulated + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
        value = tl.load(grad_T + place, mask=inside, other=0.0).to(tl.float32) * slope
        tl.store(grad_T + place, value.to(grad_T.dtype.element_ty), mask=inside)
        to_bias += value
    tl.store(parts + tl.program_id(0) * width + column, tl.sum(to_bias, axis=0), mask=column < width)
