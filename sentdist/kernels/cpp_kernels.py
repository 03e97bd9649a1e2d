"""The C++ kernels as functions of tensors: (T, W) in float32 or bfloat16, W a multiple of LANES; (T,) and (W,) in float32.

triton_kernels.py has the same functions for GPUs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sentdist.kernels.cpp_library import load_library
from sentdist.kernels.interface import AddNormGrads, AddNormOutput, AttentionLayout, Band, DropoutMask, QueryKeyValue, Triple
from sentdist.kernels.tensors import product

LANES = 16  # supported widths are multiples of it
DTYPES = (torch.float32, torch.bfloat16)
_int64, _float = ctypes.c_int64, ctypes.c_float
_ALL = 2**32  # tokens: more than a sentence has


def why_unavailable() -> str | None:
    """Return why this machine has no C++ kernels, else None. A user's first call builds them."""
    library = load_library()
    return library if isinstance(library, str) else None


def supports_layer(*tensors: Tensor, product_dtype: torch.dtype) -> bool:
    """Whether they take a layer's input and weights, with products of this type, and can run here."""
    are_supported = all(_is_supported(tensor, torch.float32) and tensor.shape[-1] % LANES == 0 for tensor in tensors)
    return product_dtype in DTYPES and are_supported and why_unavailable() is None


def supports_attention(*qkv: Tensor) -> bool:
    """Whether they take these queries, keys and values, whose width need not be a multiple of LANES, and can run here."""
    return qkv[0].dtype in DTYPES and all(_is_supported(one, qkv[0].dtype) for one in qkv) and why_unavailable() is None


def _is_supported(tensor: Tensor, dtype: torch.dtype) -> bool:
    """An ungathered shard is empty or has its own type, like a fake tensor."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.dtype == dtype and tensor.numel() > 0


def draw_dropout_masks(probabilities: Sequence[float], device: torch.device) -> tuple[DropoutMask | None, ...]:
    """Return a mask for each probability, exact to 2⁻³², with seeds from the device's default generator; None for 0."""
    if not any(probabilities):
        return (None,) * len(probabilities)
    seeds = torch.empty(len(probabilities), dtype=torch.int64, device=device).random_().tolist()
    return tuple(DropoutMask(seed=seed, p=p) if p > 0.0 else None for seed, p in zip(seeds, probabilities, strict=True))


def attention(
    qkv: QueryKeyValue, layout: AttentionLayout, dropout_mask: DropoutMask | None, *, save_for_backward: bool
) -> tuple[Tensor, Tensor | None]:
    """softmax(q kᵀ · scale + distances), dropped out, times v, times the head's scale, within each sentence and band: (T, H · head width).

    Also the statistics that the derivative needs, (T, H, 2) float32: each row's largest score, and one over the sum of its powers.

    Places of the weights, for the mask: sentence by sentence, head by head, query by query, key by key.
    """
    rows, width = len(qkv.query), layout.num_heads * layout.head_width
    out = qkv.query.new_empty(rows, width)
    statistics = qkv.query.new_empty(rows, layout.num_heads, 2, dtype=torch.float32) if save_for_backward else None
    _run(
        "attention", out.dtype, *_attention_arguments(qkv, layout, dropout_mask), _pointer(layout.head_scales), _pointer(out),
        _int64(width),
        _pointer(statistics),
    )  # fmt: skip
    return out, statistics


def attention_backward(
    qkv: QueryKeyValue, layout: AttentionLayout, dropout_mask: DropoutMask | None, *, grad: Tensor, statistics: Tensor | None, out: Triple
) -> Tensor | None:
    """Write the gradients of queries, keys and values into `out`, from that of the context; return that of the distances, if any."""
    assert all(rows.stride() == out[0].stride() for rows in out)
    grad_distances = None if layout.distances is None else torch.empty_like(layout.distances)
    _run(
        "attention_backward", grad.dtype, *_attention_arguments(qkv, layout, dropout_mask), _pointer(layout.head_scales), _pointer(grad),
        _int64(grad.shape[1]), _pointer(statistics), *map(_strided_pointer, out), _int64(out[0].stride(0)), _pointer(grad_distances),
    )  # fmt: skip
    return grad_distances


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
    """LayerNorm(dropout(product + bias) + residual), in one pass over the rows."""
    rows, width = product.shape
    out = torch.empty_like(residual)
    rounded = torch.empty_like(product) if product.dtype == torch.bfloat16 else None
    saved = (torch.empty_like(residual), residual.new_empty(rows)) if save_for_backward else None
    _run(
        "add_norm", product.dtype, _pointer(product), _pointer(bias), *_dropout_arguments(dropout_mask), _pointer(residual),
        _pointer(norm_weight), _pointer(norm_bias), ctypes.c_double(epsilon), _int64(rows), _int64(width),
        *map(_pointer, saved or (None, None)), _pointer(out), _pointer(rounded),
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
    """Return the gradients of `add_norm` from those of `out` and of `product_input`, if any. norm_bias: to recompute `product_input`."""
    rows, width = grad.shape
    recomputed = None if norm_bias is None else torch.empty_like(grad, dtype=dtype)
    grad_bias, grad_norm_weight, grad_norm_bias = grad.new_empty(3, width)
    grad_residual, grad_product = torch.empty_like(grad), torch.empty_like(grad, dtype=dtype)
    grads = AddNormGrads(grad_residual, grad_product, grad_bias, grad_norm_weight, grad_norm_bias, recomputed)
    _run(
        "add_norm_backward", dtype, _pointer(grad), _pointer(grad_product_input), *map(_pointer, saved), _pointer(norm_weight),
        _pointer(norm_bias), *_dropout_arguments(dropout_mask), _int64(rows), _int64(width), *map(_pointer, grads),
    )  # fmt: skip
    return grads


def gelu(product: Tensor, bias: Tensor) -> Tensor:
    """GELU(product + bias), by the error function."""
    out = torch.empty_like(product)
    _run("gelu", product.dtype, _pointer(product), _pointer(bias), *map(_int64, product.shape), _pointer(out))
    return out


def gelu_backward(product: Tensor, bias: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Turn `grad`, of the output of `gelu`, into that of the product, in place; return the output again and the bias's gradient."""
    recomputed, grad_bias = torch.empty_like(product), torch.empty_like(bias)
    written = map(_pointer, (grad, recomputed, grad_bias))
    _run("gelu_backward", product.dtype, _pointer(product), _pointer(bias), *map(_int64, product.shape), *written)
    return recomputed, grad_bias


def column_sums(values: Tensor) -> Tensor:
    sums = values.new_empty(values.shape[1], dtype=torch.float32)
    _run("column_sums", values.dtype, _pointer(values), *map(_int64, values.shape), _pointer(sums))
    return sums


def add_to(sums: Tensor, values: Tensor) -> Tensor:
    """Add (T, W) values of either type to float32 sums, in place; return the sums."""
    assert sums.shape == values.shape
    _run("add_to", values.dtype, _pointer(values), _int64(values.numel()), _pointer(sums))
    return sums


def addmm(sums: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """sums + left @ right in float32; `sums` may be overwritten."""
    return add_to(sums, product(left, right))


def weight_grad(grad: Tensor, inputs: Tensor) -> Tensor:
    """gradᵀ @ inputs in float32: (outputs, inputs) of a linear layer's weight. grad: of its outputs."""
    return product(grad.t(), inputs).float()


def _attention_arguments(qkv: QueryKeyValue, layout: AttentionLayout, dropout_mask: DropoutMask | None) -> tuple[object, ...]:
    stride = qkv.query.stride(0)
    assert all(rows.stride() == (stride, 1) and rows.dtype == qkv.query.dtype for rows in qkv[:3])
    return (
        *map(_strided_pointer, qkv[:3]), *map(_pointer, qkv.biases or (None, None, None)), _int64(stride), _pointer(layout.boundaries),
        _int64(len(layout.boundaries) - 1), _int64(layout.num_heads), _int64(layout.head_width), _float(layout.scale),
        *_dropout_arguments(dropout_mask), _pointer(layout.distances),
        _int64(0 if layout.distances is None else layout.distances.shape[1]), *map(_int64, _reach(layout.band)),
    )  # fmt: skip


def _reach(band: Band | None) -> tuple[int, int]:
    """Return how many tokens a token sees before and after itself."""
    before, after = (None, None) if band is None else (band.before, band.after)
    return _ALL if before is None else before, _ALL if after is None else after


def _dropout_arguments(dropout_mask: DropoutMask | None) -> tuple[object, object, object]:
    """Return the seed, the 32-bit threshold below which a value is dropped, and the factor of kept values."""
    if dropout_mask is None:
        return ctypes.c_uint64(0), ctypes.c_uint32(0), _float(1.0)
    assert isinstance(dropout_mask.seed, int)
    return ctypes.c_uint64(dropout_mask.seed), ctypes.c_uint32(round(dropout_mask.p * 2**32)), _float(1.0 / (1.0 - dropout_mask.p))


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    """Return a pointer to a contiguous tensor."""
    assert tensor is None or tensor.is_contiguous()
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _strided_pointer(rows: Tensor) -> ctypes.c_void_p:
    """Return a pointer to the first of strided rows."""
    return ctypes.c_void_p(rows.data_ptr())


def _run(name: str, dtype: torch.dtype, *arguments: object) -> None:
    """Call a function of the library. dtype: of the rows."""
    library = load_library()
    assert not isinstance(library, str), library
    getattr(library, f"sentdist_{name}")(ctypes.c_int(dtype == torch.bfloat16), *arguments, ctypes.c_int(torch.get_num_threads()))
