"""The kernels of a processor as functions of tensors: (T, W) in float32 or bfloat16, W a multiple of LANES; (T,) and (W,) in float32."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sentdist.learning import products
from sentdist.learning.kernels.library import library
from sentdist.learning.kernels.values import Mask, Normed, NormGrads, Sentences, States, Thirds

LANES = 16  # widths are multiples of it
ELEMENTS = (torch.float32, torch.bfloat16)
_int64, _float = ctypes.c_int64, ctypes.c_float


def draw_masks(dropouts: Sequence[float], device: torch.device) -> tuple[Mask | None, ...]:
    """See `Kernels`: a value is zeroed with its probability to 2⁻³²."""
    if not any(dropouts):
        return (None,) * len(dropouts)
    seeds = torch.empty(len(dropouts), dtype=torch.int64, device=device).random_().tolist()
    return tuple(Mask(seed=seed, p=p) if p > 0.0 else None for seed, p in zip(seeds, dropouts, strict=True))


def serve(*tensors: Tensor, between: torch.dtype) -> bool:
    """Whether the kernels take these float32 tensors, of whole lanes, between matrix products of a type."""
    are_served = all(_is_served(tensor, torch.float32) and tensor.shape[-1] % LANES == 0 for tensor in tensors)
    return between in ELEMENTS and are_served and why_not() is None


def serve_states(*states: Tensor) -> bool:
    """Whether they take these queries, keys and values."""
    return states[0].dtype in ELEMENTS and all(_is_served(one, states[0].dtype) for one in states) and why_not() is None


def _is_served(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Of this processor, whole and real: not a share that is not gathered, and not what a trace pretends."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.dtype == dtype and tensor.numel() > 0


def why_not() -> str | None:
    """The reason why this machine has no kernels; None where it has. The first question of a user builds them."""
    found = library()
    return found if isinstance(found, str) else None


def attention(states: States, sentences: Sentences, mask: Mask | None, *, keep: bool) -> tuple[Tensor, Tensor | None]:
    """See `Kernels`. Kept are (T, H, 2) float32: each row's largest score, and one over the sum of its powers.

    Places of the weights, for `mask`: sentence by sentence, head by head, query by query, key by key.
    """
    rows, width = len(states.query), sentences.heads * sentences.head_width
    out = states.query.new_empty(rows, width)
    statistics = states.query.new_empty(rows, sentences.heads, 2, dtype=torch.float32) if keep else None
    _call(
        "attention", out.dtype, *_heads(states, sentences, mask), _at(sentences.head_scales), _at(out), _int64(width), _at(statistics),
    )  # fmt: skip
    return out, statistics


def attention_backward(
    states: States, sentences: Sentences, mask: Mask | None, *, grad: Tensor, statistics: Tensor | None, to: Thirds
) -> None:
    """See `Kernels`."""
    assert all(rows.stride() == to[0].stride() for rows in to)
    _call(
        "attention_backward", grad.dtype, *_heads(states, sentences, mask), _at(sentences.head_scales), _at(grad),
        _int64(grad.shape[1]), _at(statistics), *map(_start, to), _int64(to[0].stride(0)),
    )  # fmt: skip


def add_norm(
    product: Tensor, bias: Tensor | None, mask: Mask | None, residual: Tensor, weight: Tensor, shift: Tensor, *, epsilon: float, keep: bool
) -> Normed:
    """See `Kernels`."""
    rows, width = product.shape
    out = torch.empty_like(residual)
    rounded = torch.empty_like(product) if product.dtype == torch.bfloat16 else None
    normalized, inverse = (torch.empty_like(residual), residual.new_empty(rows)) if keep else (None, None)
    _call(
        "add_norm", product.dtype, _at(product), _at(bias), *_dropout(mask), _at(residual), _at(weight), _at(shift), ctypes.c_double(epsilon),
        _int64(rows), _int64(width), _at(normalized), _at(inverse), _at(out), _at(rounded),
    )  # fmt: skip
    return Normed(out, out if rounded is None else rounded, None if normalized is None or inverse is None else (normalized, inverse))


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
    rows, width = grad.shape
    again = None if shift is None else torch.empty_like(grad, dtype=dtype)
    to_bias, to_weight, to_shift = grad.new_empty(3, width)
    to = NormGrads(torch.empty_like(grad), torch.empty_like(grad, dtype=dtype), to_bias, to_weight, to_shift, again)
    _call(
        "add_norm_backward", dtype, _at(grad), _at(more), *map(_at, kept), _at(weight), _at(shift), *_dropout(mask), _int64(rows),
        _int64(width), *map(_at, to),
    )  # fmt: skip
    return to


def gelu(product: Tensor, bias: Tensor) -> Tensor:
    """See `Kernels`."""
    out = torch.empty_like(product)
    _call("gelu", product.dtype, _at(product), _at(bias), *map(_int64, product.shape), _at(out))
    return out


def gelu_backward(product: Tensor, bias: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """See `Kernels`."""
    again, to_bias = torch.empty_like(product), torch.empty_like(bias)
    _call("gelu_backward", product.dtype, _at(product), _at(bias), *map(_int64, product.shape), _at(grad), _at(again), _at(to_bias))
    return again, to_bias


def column_sums(values: Tensor) -> Tensor:
    """See `Kernels`."""
    sums = values.new_empty(values.shape[1], dtype=torch.float32)
    _call("column_sums", values.dtype, _at(values), *map(_int64, values.shape), _at(sums))
    return sums


def add_to(sums: Tensor, values: Tensor) -> Tensor:
    """Add (T, W) values of either type to float32 sums, in place; returns these."""
    assert sums.shape == values.shape
    _call("add_to", values.dtype, _at(values), _int64(values.numel()), _at(sums))
    return sums


def add_product(sums: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """See `Kernels`."""
    return add_to(sums, products.product(left, right))


def weight_grad(grad: Tensor, entered: Tensor) -> Tensor:
    """See `Kernels`."""
    return products.product(grad.t(), entered).float()


def _heads(states: States, sentences: Sentences, mask: Mask | None) -> tuple[object, ...]:
    stride = states.query.stride(0)
    assert all(rows.stride() == (stride, 1) and rows.dtype == states.query.dtype for rows in states[:3])
    return (
        *map(_start, states[:3]), *map(_at, states.biases or (None, None, None)), _int64(stride), _at(sentences.boundaries),
        _int64(len(sentences.boundaries) - 1), _int64(sentences.heads), _int64(sentences.head_width), _float(sentences.scale), *_dropout(mask),
    )  # fmt: skip


def _dropout(mask: Mask | None) -> tuple[object, object, object]:
    if mask is None:
        return ctypes.c_uint64(0), ctypes.c_uint32(0), _float(1.0)
    assert isinstance(mask.seed, int)
    return ctypes.c_uint64(mask.seed), ctypes.c_uint32(round(mask.p * 2**32)), _float(1.0 / (1.0 - mask.p))


def _at(tensor: Tensor | None) -> ctypes.c_void_p:
    """Where a whole tensor lies, its rows one behind the other."""
    assert tensor is None or tensor.is_contiguous()
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _start(rows: Tensor) -> ctypes.c_void_p:
    """Where the first of rows with a stride of their own lies."""
    return ctypes.c_void_p(rows.data_ptr())


def _call(name: str, dtype: torch.dtype, *arguments: object) -> None:
    """dtype: of the rows."""
    found = library()
    assert not isinstance(found, str), found
    getattr(found, f"sentdist_{name}")(ctypes.c_int(dtype == torch.bfloat16), *arguments, ctypes.c_int(torch.get_num_threads()))
