"""Private operations of torch, each checked before use and with a fallback; and the choice of tiles for Triton."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sentdist.learning.bank_shape import TILES, longest_tile
from sentdist.learning.encoder.tokens import sent_to
from sentdist.learning.kernels.interface import Launches

# How `fused_attention` calls them: the first arguments by position, and a scale by name.
_ARGUMENTS = {
    "_flash_attention_forward": "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask",
    "_efficient_attention_forward": "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p custom_mask_type "
    "compute_log_sumexp",
}


@cache
def has_attention(name: str) -> bool:
    """Whether torch has this attention operation, with the arguments used here."""
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
    """Whether this torch's FlashAttention supports windows."""
    schema = torch.ops.aten._flash_attention_forward.default._schema
    return {"window_size_left", "window_size_right"} <= {argument.name for argument in schema.arguments}


@cache
def has_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16 products (AVX-512, AMX, ARM's bf16).

    Without them torch's products take 49 times as long as in float32 (2 cores AMD EPYC, Zen 3; 4096 × 384 × 1536).
    """
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return False


def softmax_backward(grad: Tensor, weights: Tensor, *, out: Tensor) -> None:
    """Write the gradient of the softmax's input into `out`; weights: its output over the last dimension, grad: their gradient."""
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


FEWEST_PROGRAMS = 4096  # fewer do not fill a GPU: their sentences join those of the next tile


def tile_launches(lengths: Sequence[int], device: torch.device, *, num_heads: int) -> Launches:
    """Assign sentences to launches by tile: host arithmetic, then a copy without waiting. The longest must fit into the last tile."""
    tile_S = np.searchsorted(TILES, np.asarray(lengths, dtype=np.int64))
    order = np.argsort(tile_S, kind="stable")
    tiles: list[int] = []
    counts: list[int] = []
    held = 0
    for tile, count in enumerate(np.bincount(tile_S).tolist()):
        held += count
        if held and (tile == tile_S.max() or held * num_heads >= FEWEST_PROGRAMS):
            tiles.append(TILES[tile])
            counts.append(held)
            held = 0
    parts = sent_to(torch.from_numpy(order.astype(np.int32)), device).split(counts)
    return tuple(zip(tiles, parts, strict=True))


def largest_tile(width: int, dtype: torch.dtype) -> int:
    """Like `longest_tile`, for a dtype."""
    return longest_tile(width, dtype.itemsize)


def is_faster_than_torch(query: Tensor, *, num_sentences: int) -> bool:
    """Whether the Triton kernel is faster for (T, H, head width), as measured on an H100: always in float32.

    In half precision FlashAttention is faster if sentences fill its tiles, or are so few that only kernel start-up counts.
    """
    num_tokens, num_heads, _ = query.shape
    if query.dtype == torch.float32:
        return True
    return num_tokens <= TILES[-2] * num_sentences and num_sentences * num_heads >= 2 * FEWEST_PROGRAMS
