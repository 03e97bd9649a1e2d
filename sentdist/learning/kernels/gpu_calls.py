"""The kernels of a GPU as functions of tensors, see `values.Kernels`; float32 and half precision, on NVIDIA's GPUs from Ampere on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
import triton
from torch import Tensor, nn

from sentdist.errors import first_line
from sentdist.learning.kernels import gpu_rows, short_attention
from sentdist.learning.kernels.gpu_common import dropout_numbers, on_device
from sentdist.learning.kernels.values import AttentionKernel, Mask, Normed, NormGrads, Sentences, States, Thirds

HALVES = (torch.bfloat16, torch.float16)
WIDEST = 4096  # of rows that one program holds
PROGRAMS = 1024  # that share the rows of a sum
TILE = (16, 128)  # rows and columns of a program for GELU

_LAYERS = 0  # beside tiles, among what was used
_used: set[int] = set()


def draw_masks(dropouts: Sequence[float], device: torch.device) -> tuple[Mask | None, ...]:
    """See `Kernels`: a value is zeroed with its probability to 2⁻²⁴."""
    if not any(dropouts):
        return (None,) * len(dropouts)
    seeds = torch.randint(2**62, (len(dropouts),), device=device).unbind()
    return tuple(Mask(seed=seed, p=p) if p > 0.0 else None for seed, p in zip(seeds, dropouts, strict=True))


def serve(*tensors: Tensor, between: torch.dtype) -> bool:
    """Whether the kernels take these between matrix products of a type: float32 tensors of a GPU, whole and real, no share that is not
    gathered and not what a trace pretends; and whether this machine can compile them."""
    are_served = all(
        type(one) in (Tensor, nn.Parameter) and one.is_cuda and one.dtype == torch.float32 and one.shape[-1] <= WIDEST and one.numel() > 0
        for one in tensors
    )
    return are_served and (between == torch.float32 or between in HALVES) and rows_run_here(tensors[0].device, between)


class _PretendedError(Exception):
    """Tensors are only pretended, as while torch traces: no kernel runs then, which says nothing about this machine."""


def runs_here(kernel: AttentionKernel, tiles: tuple[int, ...]) -> bool:
    """Whether this machine can compile and start it with these tiles: that takes a C compiler, and memory within a multiprocessor. Not
    under a trace. Every layer asks it in every step: all but the first get what the first was told.

    Raises:
        torch.OutOfMemoryError: the GPU is full, which says nothing about the kernel.
    """
    try:
        return _runs_here(kernel, tiles, short_attention.float32_products())
    except _PretendedError:
        return False


def rows_run_here(device: torch.device, dtype: torch.dtype) -> bool:
    """The same of those over rows, with their derivative, between products of a type."""
    try:
        return _trouble_with_rows(device, dtype) is None
    except _PretendedError:
        return False


@cache
def _runs_here(kernel: AttentionKernel, tiles: tuple[int, ...], products: str) -> bool:
    return all(_trouble_with(kernel, tile, products) is None for tile in tiles)


@cache
def _trouble_with(kernel: AttentionKernel, tile: int, products: str) -> str | None:
    """products: how float32 is multiplied now, which is part of a kernel."""
    return _tried(partial(_try_attention, kernel, tile))


@cache
def _trouble_with_rows(device: torch.device, dtype: torch.dtype) -> str | None:
    return _tried(partial(_try_rows, device, dtype))


def _tried(run: Callable[[], None]) -> str | None:
    """Why something cannot run on this machine; None where it can.

    Raises:
        _PretendedError: which no cache keeps.
    """
    if type(torch.empty(0)) is not Tensor:
        raise _PretendedError
    before = set(_used)
    try:
        run()
    except Exception as error:  # whatever a compiler, a driver or Triton says: torch's own kernels do the same, slower
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower():
            raise
        return f"{type(error).__name__}: {first_line(error)}"
    finally:
        _used.intersection_update(before)  # what was only tried computed nothing
    return None


def _try_attention(kernel: AttentionKernel, tile: int) -> None:
    rows = torch.zeros(1, kernel.width, device=kernel.device, dtype=kernel.dtype)
    bounds = torch.arange(2, dtype=torch.int32, device=kernel.device)
    bias = torch.zeros(kernel.width, device=kernel.device)
    sentences = Sentences(
        boundaries=bounds, heads=1, head_width=kernel.width, scale=1.0, launches=((tile, bounds[:1]),),
        head_scales=bias[None, :1] if kernel.scales else None,
    )  # fmt: skip
    mask = Mask(seed=torch.zeros((), dtype=torch.int64, device=kernel.device), p=0.5) if kernel.drops else None
    states = States(rows, rows, rows, (bias, bias, bias) if kernel.adds else None)
    context, _ = attention(states, sentences, mask, keep=kernel.learns)
    if kernel.learns:
        to_query, to_key, to_value = torch.empty_like(rows), torch.empty_like(rows), torch.empty_like(rows)
        attention_backward(states, sentences, mask, grad=context, statistics=None, to=(to_query, to_key, to_value))


def _try_rows(device: torch.device, dtype: torch.dtype) -> None:
    rows, ones = torch.ones(2, 16, device=device, dtype=dtype), torch.ones(16, device=device)
    mask = Mask(seed=torch.zeros((), dtype=torch.int64, device=device), p=0.5)
    normed = add_norm(rows, ones, mask, rows.float(), ones, ones, epsilon=1.0, keep=True)
    assert normed.for_derivative is not None
    add_norm_backward(normed.out, rows, normed.for_derivative, ones, mask, dtype=dtype, shift=ones)
    gelu_backward(rows, ones, gelu(rows, ones))
    add_product(torch.zeros(2, 16, device=device), rows, weight_grad(rows, rows).to(dtype))


def in_use() -> str | None:
    """Which of them this process has run, for the records of what it computed."""
    if not _used:
        return None
    tiles = " ".join(map(str, sorted(_used - {_LAYERS})))
    return ", ".join([f"Triton {triton.__version__}", *(["layers"] if _LAYERS in _used else []), *([f"tiles of {tiles}"] if tiles else [])])


def trouble(device: torch.device) -> str | None:
    """Why they cannot run on this machine; None where the smallest do."""
    for dtype in (torch.float32, torch.bfloat16):
        kernel = AttentionKernel(device=device, dtype=dtype, width=32, drops=False, learns=False)
        found = _trouble_with(kernel, 16, short_attention.float32_products()) or _trouble_with_rows(device, dtype)
        if found is not None:
            return found
    return None


def attention(states: States, sentences: Sentences, mask: Mask | None, *, keep: bool) -> tuple[Tensor, Tensor | None]:
    """See `Kernels`: nothing is kept, for weights are made again in the derivative. Sentences must fit into the tiles of `launches`."""
    context = states.query.new_empty(len(states.query), sentences.heads * sentences.head_width)
    short_attention.attend(states, sentences, mask, context)
    _used.update(tile for tile, _ in sentences.launches)
    return context, None


def attention_backward(
    states: States, sentences: Sentences, mask: Mask | None, *, grad: Tensor, statistics: Tensor | None, to: Thirds
) -> None:
    """See `Kernels`."""
    short_attention.attend_backward(states, sentences, mask, grad, to)


def add_norm(
    product: Tensor, bias: Tensor | None, mask: Mask | None, residual: Tensor, weight: Tensor, shift: Tensor, *, epsilon: float, keep: bool
) -> Normed:
    """See `Kernels`."""
    num_rows, width = product.shape
    _check_whole(product, residual)
    _used.add(_LAYERS)
    out = torch.empty_like(residual)
    rounded = torch.empty_like(product) if product.dtype in HALVES else None
    normalized, inverse = (torch.empty_like(residual), residual.new_empty(num_rows)) if keep else (out, out)
    with on_device(product):
        gpu_rows.add_norm[(num_rows,)](
            product, weight if bias is None else bias, residual, weight, shift, out, out if rounded is None else rounded, normalized, inverse,
            *dropout_numbers(mask, weight), epsilon, width,
            **_block(width), ADDS=bias is not None, DROPS=mask is not None, ROUNDS=rounded is not None, KEEPS=keep,
        )  # fmt: skip
    return Normed(out, out if rounded is None else rounded, (normalized, inverse) if keep else None)


def add_norm_backward(
    grad: Tensor,
    more: Tensor | None,
    kept: tuple[Tensor, Tensor],
    weight: Tensor,
    mask: Mask | None,
    *,
    dtype: torch.dtype,
    shift: Tensor | None = None,
) -> NormGrads:
    """See `Kernels`."""
    num_rows, width = grad.shape
    _check_whole(grad, more, *kept)
    again = None if shift is None else torch.empty_like(grad, dtype=dtype)
    to_residual, to_product = torch.empty_like(grad), torch.empty_like(grad, dtype=dtype)
    rows_each = -(-num_rows // PROGRAMS)
    parts = grad.new_empty(-(-num_rows // rows_each), 3, width)
    with on_device(grad):
        gpu_rows.add_norm_backward[(len(parts),)](
            grad, grad if more is None else more, *kept, weight, weight if shift is None else shift, to_residual, to_product,
            to_product if again is None else again, parts, *dropout_numbers(mask, weight), num_rows, rows_each, width,
            **_block(width), MORE=more is not None, DROPS=mask is not None, AGAIN=again is not None,
        )  # fmt: skip
    to_bias, to_weight, to_shift = parts.sum(dim=0).unbind()
    return NormGrads(to_residual, to_product, to_bias, to_weight, to_shift, again)


def gelu(product: Tensor, bias: Tensor) -> Tensor:
    """See `Kernels`."""
    num_rows, width = product.shape
    _check_whole(product)
    out = torch.empty_like(product)
    rows, columns = TILE
    with on_device(product):
        gpu_rows.gelu[(-(-num_rows // rows), -(-width // columns))](product, bias, out, num_rows, width, ROWS=rows, COLUMNS=columns)
    return out


def gelu_backward(product: Tensor, bias: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """See `Kernels`."""
    num_rows, width = product.shape
    _check_whole(product, grad)
    again = torch.empty_like(product)
    rows, columns = TILE
    across = -(-width // columns)
    rows_each = rows * -(-num_rows // (rows * max(1, 2 * PROGRAMS // across)))
    parts = bias.new_empty(-(-num_rows // rows_each), width)
    with on_device(product):
        gpu_rows.gelu_backward[(len(parts), across)](
            product, bias, grad, again, parts, num_rows, rows_each, width, ROWS=rows, COLUMNS=columns
        )
    return again, parts.sum(dim=0)


def column_sums(values: Tensor) -> Tensor:
    """See `Kernels`."""
    return values.sum(dim=0, dtype=torch.float32)


def add_product(sums: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """See `Kernels`."""
    if left.dtype == torch.float32:
        return torch.addmm(sums, left, right)
    return torch.addmm(sums, left, right, out_dtype=torch.float32)


def weight_grad(grad: Tensor, entered: Tensor) -> Tensor:
    """See `Kernels`: summed and kept in float32."""
    if grad.dtype == torch.float32:
        return grad.t() @ entered
    return torch.mm(grad.t(), entered, out_dtype=torch.float32)


def _check_whole(*tensors: Tensor | None) -> None:
    """That rows lie one behind the other, as kernels take them."""
    assert all(one is None or one.is_contiguous() for one in tensors)


def _block(width: int) -> dict[str, int]:
    """How a row lies in a program: so many values, so many warps."""
    block = max(16, triton.next_power_of_2(width))
    return {"BLOCK": block, "num_warps": max(1, min(8, block // 512))}
