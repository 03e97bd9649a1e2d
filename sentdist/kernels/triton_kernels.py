"""The Triton kernels as functions of tensors: float32 and half precision, on NVIDIA GPUs from Ampere on.

cpp_kernels.py documents the functions without a docstring.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

import torch
import triton
from torch import Tensor, nn

from sentdist.errors import first_line
from sentdist.kernels import triton_attention, triton_rows
from sentdist.kernels.interface import (
    AddNormGrads,
    AddNormOutput,
    AttentionLayout,
    Band,
    DropoutMask,
    QueryKeyValue,
    Triple,
)
from sentdist.kernels.triton_rows import device_guard, dropout_arguments

HALF_DTYPES = (torch.bfloat16, torch.float16)
MAX_WIDTH = 4096  # of rows that one program holds
SUM_PROGRAMS = 1024  # programs that share the rows of a sum
GELU_TILE = (16, 128)  # rows and columns of a program

log = logging.getLogger(__name__)
_LAYERS = "layers"
_used: set[str | int] = set()  # kernels over rows, under the name above; and tiles of attention


def supports_layer(*tensors: Tensor, product_dtype: torch.dtype) -> bool:
    are_supported = all(
        type(one) in (Tensor, nn.Parameter)
        and one.is_cuda
        and one.dtype == torch.float32
        and one.shape[-1] <= MAX_WIDTH
        and one.numel() > 0
        for one in tensors
    )
    is_product_dtype = product_dtype == torch.float32 or product_dtype in HALF_DTYPES
    return are_supported and is_product_dtype and why_unavailable(tensors[0].device) is None


def why_unavailable(device: torch.device) -> str | None:
    """Return why they cannot run on this machine, e.g. without a C compiler; None if they do. Tried once, with the smallest tensors.

    Raises:
        torch.OutOfMemoryError: the GPU is full, which is no property of the machine.
    """
    if type(torch.empty(0)) is not Tensor:
        return "tensors are fake, as while torch traces"
    return _failure(device)


@cache
def _failure(device: torch.device) -> str | None:
    used = set(_used)
    try:
        for dtype in (torch.float32, torch.bfloat16):
            _try_attention(device, dtype)
            _try_rows(device, dtype)
    except Exception as error:  # of compiler, driver or Triton: torch's own kernels do the same, slower
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower():
            raise
        failure = f"{type(error).__name__}: {first_line(error)}"
        log.warning("the Triton kernels do not run here, using torch's: %s", failure)
        return failure
    finally:
        _used.intersection_update(used)  # trials do not count as use
    return None


def _try_attention(device: torch.device, dtype: torch.dtype, *, width: int = 32, tile: int = 16) -> None:
    rows, bias = torch.zeros(1, width, device=device, dtype=dtype), torch.zeros(width, device=device)
    boundaries = torch.arange(2, dtype=torch.int32, device=device)
    layout = AttentionLayout(
        boundaries=boundaries, num_heads=1, head_width=width, scale=1.0, launches=((tile, boundaries[:1]),), head_scales=bias[None, :1],
        distances=bias[None, :1], band=Band(before=0, after=0),
    )  # fmt: skip
    dropout_mask = DropoutMask(seed=torch.zeros((), dtype=torch.int64, device=device), p=0.5)
    qkv = QueryKeyValue(rows, rows, rows, (bias, bias, bias))
    context, _ = attention(qkv, layout, dropout_mask, save_for_backward=True)
    out = torch.empty_like(rows), torch.empty_like(rows), torch.empty_like(rows)
    attention_backward(qkv, layout, dropout_mask, grad=context, statistics=None, out=out)


def _try_rows(device: torch.device, dtype: torch.dtype) -> None:
    rows, ones = torch.ones(2, 16, device=device, dtype=dtype), torch.ones(16, device=device)
    dropout_mask = DropoutMask(seed=torch.zeros((), dtype=torch.int64, device=device), p=0.5)
    normed = add_norm(rows, ones, dropout_mask, rows.float(), ones, ones, epsilon=1.0, save_for_backward=True)
    assert normed.saved_for_backward is not None
    add_norm_backward(normed.out, rows, normed.saved_for_backward, ones, dropout_mask, dtype=dtype, norm_bias=ones)
    gelu_backward(rows, ones, gelu(rows, ones))
    addmm(torch.zeros(2, 16, device=device), rows, weight_grad(rows, rows).to(dtype))


def used_names() -> str | None:
    """Return the kernels that this process has run; None if there are none."""
    if not _used:
        return None
    tiles = " ".join(map(str, sorted(one for one in _used if isinstance(one, int))))
    return ", ".join([f"Triton {triton.__version__}", *([_LAYERS] if _LAYERS in _used else []), *([f"tiles of {tiles}"] if tiles else [])])


def draw_dropout_masks(probabilities: Sequence[float], device: torch.device) -> tuple[DropoutMask | None, ...]:
    """See cpp_kernels.py; a value is zeroed with its probability to 2⁻²⁴."""
    if not any(probabilities):
        return (None,) * len(probabilities)
    seeds = torch.randint(2**62, (len(probabilities),), device=device).unbind()
    return tuple(DropoutMask(seed=seed, p=p) if p > 0.0 else None for seed, p in zip(seeds, probabilities, strict=True))


def attention(
    qkv: QueryKeyValue, layout: AttentionLayout, dropout_mask: DropoutMask | None, *, save_for_backward: bool
) -> tuple[Tensor, Tensor | None]:
    """See cpp_kernels.py. No statistics: the derivative recomputes weights. Sentences must fit into the tiles of `launches`."""
    context = qkv.query.new_empty(len(qkv.query), layout.num_heads * layout.head_width)
    triton_attention.attend(qkv, layout, dropout_mask, context)
    _used.update(tile for tile, _ in layout.launches)
    return context, None


def attention_backward(
    qkv: QueryKeyValue, layout: AttentionLayout, dropout_mask: DropoutMask | None, *, grad: Tensor, statistics: Tensor | None, out: Triple
) -> Tensor | None:
    return triton_attention.attend_backward(qkv, layout, dropout_mask, grad, out)


def add_norm(
    product: Tensor,
    bias: Tensor | None,
    dropout_mask: DropoutMask | None,
    residual: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    *,
    epsilon: float,
    save_for_backward: bool,
) -> AddNormOutput:
    num_rows, width = product.shape
    _check_contiguous(product, residual)
    _used.add(_LAYERS)
    out = torch.empty_like(residual)
    rounded = torch.empty_like(product) if product.dtype in HALF_DTYPES else None
    saved = (torch.empty_like(residual), residual.new_empty(num_rows)) if save_for_backward else None
    with device_guard(product):
        triton_rows.add_norm[(num_rows,)](
            product, norm_weight if bias is None else bias, residual, norm_weight, norm_bias, out, out if rounded is None else rounded,
            *(saved or (out, out)), *dropout_arguments(dropout_mask, norm_weight), epsilon, width,
            **_row_block(width), HAS_BIAS=bias is not None, HAS_DROPOUT=dropout_mask is not None, ROUNDS=rounded is not None,
            SAVES=save_for_backward,
        )  # fmt: skip
    return AddNormOutput(out, out if rounded is None else rounded, saved)


def add_norm_backward(
    grad: Tensor,
    grad_product_input: Tensor | None,
    saved: tuple[Tensor, Tensor],
    norm_weight: Tensor,
    dropout_mask: DropoutMask | None,
    *,
    dtype: torch.dtype,
    norm_bias: Tensor | None = None,
) -> AddNormGrads:
    num_rows, width = grad.shape
    _check_contiguous(grad, grad_product_input, *saved)
    recomputed = None if norm_bias is None else torch.empty_like(grad, dtype=dtype)
    grad_residual, grad_product = torch.empty_like(grad), torch.empty_like(grad, dtype=dtype)
    rows_per_program = -(-num_rows // SUM_PROGRAMS)
    parts = grad.new_empty(-(-num_rows // rows_per_program), 3, width)
    with device_guard(grad):
        triton_rows.add_norm_backward[(len(parts),)](
            grad, grad if grad_product_input is None else grad_product_input, *saved, norm_weight,
            norm_weight if norm_bias is None else norm_bias,
            grad_residual, grad_product, grad_product if recomputed is None else recomputed, parts,
            *dropout_arguments(dropout_mask, norm_weight),
            num_rows, rows_per_program, width,
            **_row_block(width), HAS_PRODUCT_INPUT=grad_product_input is not None, HAS_DROPOUT=dropout_mask is not None,
            RECOMPUTES=recomputed is not None,
        )  # fmt: skip
    grad_bias, grad_norm_weight, grad_norm_bias = parts.sum(dim=0).unbind()
    return AddNormGrads(grad_residual, grad_product, grad_bias, grad_norm_weight, grad_norm_bias, recomputed)


def gelu(product: Tensor, bias: Tensor) -> Tensor:
    num_rows, width = product.shape
    _check_contiguous(product)
    out = torch.empty_like(product)
    rows, columns = GELU_TILE
    with device_guard(product):
        triton_rows.gelu[(-(-num_rows // rows), -(-width // columns))](product, bias, out, num_rows, width, ROWS=rows, COLUMNS=columns)
    return out


def gelu_backward(product: Tensor, bias: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    num_rows, width = product.shape
    _check_contiguous(product, grad)
    recomputed = torch.empty_like(product)
    rows, columns = GELU_TILE
    across = -(-width // columns)
    rows_per_program = rows * -(-num_rows // (rows * max(1, 2 * SUM_PROGRAMS // across)))
    parts = bias.new_empty(-(-num_rows // rows_per_program), width)
    with device_guard(product):
        triton_rows.gelu_backward[(len(parts), across)](
            product, bias, grad, recomputed, parts, num_rows, rows_per_program, width, ROWS=rows, COLUMNS=columns
        )
    return recomputed, parts.sum(dim=0)


def column_sums(values: Tensor) -> Tensor:
    return values.sum(dim=0, dtype=torch.float32)


def addmm(sums: Tensor, left: Tensor, right: Tensor) -> Tensor:
    if left.dtype == torch.float32:
        return torch.addmm(sums, left, right)
    return torch.addmm(sums, left, right, out_dtype=torch.float32)


def weight_grad(grad: Tensor, inputs: Tensor) -> Tensor:
    """See cpp_kernels.py; summed and kept in float32."""
    if grad.dtype == torch.float32:
        return grad.t() @ inputs
    return torch.mm(grad.t(), inputs, out_dtype=torch.float32)


def _check_contiguous(*tensors: Tensor | None) -> None:
    assert all(one is None or one.is_contiguous() for one in tensors)


def _row_block(width: int) -> dict[str, int]:
    """Return the block size and number of warps of a row."""
    block = max(16, triton.next_power_of_2(width))
    return {"BLOCK": block, "num_warps": max(1, min(8, block // 512))}
