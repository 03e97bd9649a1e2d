"""Operations on tensors that kernels and encoders share: products, dropout masks, copies; private ones of torch are checked first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.kernels import TILES
from sentdist.kernels.interface import Launches


def inverse(order: np.ndarray) -> np.ndarray:
    """Return the inverse of a permutation in one pass."""
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return back


def sent_to(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return a host tensor on `device` without blocking the host, which a copy from memory that is not pinned would do."""
    device = torch.device(device)
    if device.type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@cache
def has_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16 products (AVX-512, AMX, ARM's bf16).

    Without them torch's products take 49 times as long as in float32 (2 cores AMD EPYC, Zen 3; 4096 × 384 × 1536).
    """
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a build of torch without oneDNN
        return False


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


def is_faster_than_torch(query: Tensor, *, num_sentences: int) -> bool:
    """Whether the Triton kernel is faster for (T, H, head width), as measured on an H100: always in float32.

    In half precision FlashAttention is faster if sentences fill its tiles, or are so few that only kernel start-up counts.
    """
    num_tokens, num_heads, _ = query.shape
    if query.dtype == torch.float32:
        return True
    return num_tokens <= TILES[-2] * num_sentences and num_sentences * num_heads >= 2 * FEWEST_PROGRAMS


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right; bfloat16 values are multiplied and summed in float32 and rounded once, with or without instructions for it."""
    if left.dtype != torch.bfloat16 or left.device.type != "cpu" or has_bfloat16():
        return left @ right
    return (left.float() @ right.float()).bfloat16()


_LEVELS = 2**16


def keep_mask(shape: torch.Size | tuple[int, ...], p: float, *, device: torch.device) -> Tensor:
    """Draw a bool mask that is False with probability `p` (to 1/65536), from torch's default generator of `device`.

    On a CPU four decisions come from one 64-bit draw: `bernoulli_` is serial there and took 6 ms for a million values against 0.8 ms.
    """
    if device.type != "cpu":
        return torch.empty(shape, dtype=torch.bool, device=device).bernoulli_(1.0 - p)
    count = int(torch.Size(shape).numel())
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:count].view(shape) >= round(p * _LEVELS) - _LEVELS // 2


def dropout_factors(values: Tensor, p: float) -> Tensor:
    """Draw the factors of `values`: 0 with probability `p`, else 1 / (1 - p); same shape and type.

    Kept in the type of the values: a product with bool is twice as slow on a CPU, and both passes need one.
    """
    return keep_mask(values.shape, p, device=values.device).to(values.dtype).mul_(1.0 / (1.0 - p))


def dropout(values: Tensor, p: float) -> Tensor:
    """Zero each value with probability `p` and scale the rest by 1 / (1 - p), like `nn.functional.dropout` in training."""
    if p == 0.0:
        return values
    if values.device.type != "cpu":
        return nn.functional.dropout(values, p, training=True)
    return values * dropout_factors(values, p)


def head_scales(num_examples: int, num_heads: int, p: float, *, device: torch.device) -> Tensor:
    """Draw the DropHead factors (S, H) of one layer: m_h · H / Σ m_h with m_h ~ Bernoulli(1 − p), one mask per example.

    Source: Zhou et al. 2020, "Scheduled DropHead" (arXiv 2004.13342), with a constant p as in RCL.
    Examples whose heads are all dropped are drawn again, since 0/0 would follow; on a GPU by one more draw for all, because finding
    them would block in every layer.
    """
    kept = torch.empty(num_examples, num_heads, device=device).bernoulli_(1.0 - p)
    if device.type != "cpu" and p > 0.0:
        return _scaled(torch.where(kept.any(dim=1, keepdim=True), kept, heads_of_which_one_is_kept(kept, p)))
    while bool((empty := kept.sum(dim=1) == 0).any()):
        kept[empty] = torch.empty(int(empty.sum()), num_heads, device=device).bernoulli_(1.0 - p)
    return _scaled(kept)


def heads_of_which_one_is_kept(like: Tensor, p: float) -> Tensor:
    """Draw (S, H) m_h ~ Bernoulli(1 − p) given that some m_h of an example is 1: equivalent to rejection sampling, without reading the
    values.

    First the first head that is kept, P(j) = pʲ (1 − p) / (1 − p^H), by inversion; those before it are dropped, those after it are free.
    """
    num_examples, num_heads = like.shape
    shares = torch.rand(num_examples, 1, device=like.device, dtype=like.dtype) * (1.0 - p**num_heads)
    first = (torch.log1p(-shares) / math.log(p)).floor().clamp(max=num_heads - 1)
    head = torch.arange(num_heads, device=like.device)
    return torch.where(head > first, torch.empty_like(like).bernoulli_(1.0 - p), (head == first).to(like.dtype))


def _scaled(kept: Tensor) -> Tensor:
    return kept * (kept.shape[1] / kept.sum(dim=1, keepdim=True))
