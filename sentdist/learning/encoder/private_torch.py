"""Operations of torch that are not public: each is asked for before it is used, and there is another way where this torch lacks it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

# How `fused_attention` calls them: the first arguments by place, and a scale by name.
_ARGUMENTS = {
    "_flash_attention_forward": "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask",
    "_efficient_attention_forward": "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p custom_mask_type "
    "compute_log_sumexp",
}


@cache
def has_attention(name: str) -> bool:
    """Whether torch has this operation of its attention, with the arguments that it is called with here."""
    operation: Any = getattr(torch.ops.aten, name, None)
    if operation is None:
        return False
    try:
        found = [argument.name for argument in operation.default._schema.arguments]
    except AttributeError:
        return False
    wanted = _ARGUMENTS[name].split()
    return found[: len(wanted)] == wanted and "scale" in found


@cache
def has_windows() -> bool:
    """Whether FlashAttention of this torch takes windows."""
    schema = torch.ops.aten._flash_attention_forward.default._schema
    return {"window_size_left", "window_size_right"} <= {argument.name for argument in schema.arguments}


@cache
def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 values (AVX-512, AMX, ARM's bf16).

    Where it does not, torch's own products of them take 49 times as long as those of float32 (2 cores AMD EPYC, Zen 3; 4096 × 384 × 1536).
    """
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return False


def softmax_backward(grad: Tensor, weights: Tensor, *, out: Tensor) -> None:
    """Write the gradient of what `weights` is the softmax of, over the last dimension, into `out`; grad is that of the weights."""
    if _has_softmax_backward():
        torch._softmax_backward_data(grad, weights, -1, weights.dtype, grad_input=out)
    else:
        torch.mul(grad, weights, out=out)
        out.sub_(weights * out.sum(-1, keepdim=True))


@cache
def _has_softmax_backward() -> bool:
    half = torch.full((1, 2), 0.5)
    try:
        torch._softmax_backward_data(half, half, -1, half.dtype, grad_input=torch.empty_like(half))
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: it is there and takes other arguments
        return False
    return True
