"""Attention within short sentences in Triton: one program per sentence and head, whose weights never leave it.

FlashAttention has tiles of 128 tokens, which sentences of twenty leave mostly empty. Here a tile fits the sentences:
16, 32, 64 or 128 tokens. Dropout masks are counted by sentence, head, row and column (Philox, Salmon et al. 2011), so that forward
and backward pass draw the same, in every number format.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sentdist.kernels.interface import AttentionLayout, DropoutMask, QueryKeyValue, Triple
from sentdist.kernels.triton_rows import device_guard, dropout_arguments, dropout_factors, float32_precision

WARPS = {16: 1, 32: 2, 64: 4, 128: 8}


def attend(qkv: QueryKeyValue, layout: AttentionLayout, dropout_mask: DropoutMask | None, context: Tensor) -> None:
    """Write the context, (T, H · head width)."""
    for tile, sentences in layout.launches:
        _launch(_attend, tile, sentences, (*qkv[:3], context), qkv, layout, dropout_mask)


def attend_backward(
    qkv: QueryKeyValue, layout: AttentionLayout, dropout_mask: DropoutMask | None, grad: Tensor, out: Triple
) -> Tensor | None:
    """Write the gradients of queries, keys and values into `out`, from that of the context; return that of the distances, if any.

    That of a distance is a sum over the pairs of a sentence at that distance, in a fixed order, then over sentences.
    """
    assert grad.is_contiguous() and all(one.stride() == (out[0].stride(0), 1) for one in out)
    grad_distances = None if layout.distances is None else torch.zeros_like(layout.distances, dtype=torch.float32)
    for tile, sentences in layout.launches:
        sums = None if grad_distances is None else grad_distances.new_empty(len(sentences), layout.num_heads, 2 * tile)
        tensors = (*qkv[:3], grad, *out, layout.boundaries if sums is None else sums)
        _launch(_attend_backward, tile, sentences, tensors, qkv, layout, dropout_mask, out[0].stride(0))
        if grad_distances is not None and sums is not None:
            reach = _reach(grad_distances)
            within = min(tile, reach)
            grad_distances[:, reach - within : reach + within - 1] += sums.sum(dim=0)[:, tile - within + 1 : tile + within]
    return grad_distances


def _reach(distances: Tensor) -> int:
    """Return R of (H, 2R - 1)."""
    return (distances.shape[1] + 1) // 2


def _launch(
    kernel: Any,
    tile: int,
    sentences: Tensor,
    tensors: tuple[Tensor, ...],
    qkv: QueryKeyValue,
    layout: AttentionLayout,
    dropout_mask: DropoutMask | None,
    *strides: int,
) -> None:
    query, unused = qkv.query, layout.boundaries
    assert all(one.stride() == (query.stride(0), 1) for one in qkv[:3])
    assert layout.distances is None or layout.distances.is_contiguous()
    biases = qkv.biases or (unused,) * 3
    head_scales = unused if layout.head_scales is None else layout.head_scales
    distances, reach = (unused, 0) if layout.distances is None else (layout.distances, _reach(layout.distances))
    before, after = (0, 0) if layout.band is None else (tile if one is None else one for one in (layout.band.before, layout.band.after))
    with device_guard(query):
        kernel[(len(sentences) * layout.num_heads,)](
            *tensors, *biases, head_scales, distances, layout.boundaries, sentences, *dropout_arguments(dropout_mask, unused),
            layout.scale, layout.num_heads, query.stride(0), reach, before, after, *strides,
            WIDTH=layout.head_width, TILE=tile, HAS_DROPOUT=dropout_mask is not None, HAS_BIASES=qkv.biases is not None,
            HAS_HEAD_SCALES=layout.head_scales is not None, HAS_DISTANCES=layout.distances is not None, HAS_BAND=layout.band is not None,
            PRECISION=float32_precision(), num_warps=WARPS[tile], num_stages=1,
        )  # fmt: skip


# Numbers that vary by batch: Triton would compile separate kernels for multiples of 16.
_jit: Any = triton.jit(
    do_not_specialize=["threshold", "num_heads", "reach", "before", "after"], do_not_specialize_on_alignment=["sentences", "seed"]
)


@triton.jit
def _locate(boundaries, sentences, num_heads, WIDTH: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return this program's sentence and head, its rows, which of them lie inside, and its columns."""
    program = tl.program_id(0)
    sentence, head = tl.load(sentences + program // num_heads), program % num_heads
    start = tl.load(boundaries + sentence).to(tl.int64)
    row = tl.arange(0, TILE)
    inside = row < tl.load(boundaries + sentence + 1) - start
    return sentence, head, (start + row)[:, None], inside[:, None], head * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _load(rows, bias, place, inside, column, HAS_BIASES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load a tile of queries, keys or values."""
    state = tl.load(rows + place, mask=inside, other=0.0)
    if HAS_BIASES:
        state = (state.to(tl.float32) + tl.load(bias + column)).to(state.dtype)
    return state


@triton.jit
def _load_qkv(  # type: ignore[no-untyped-def]
    query_T, key_T, value_T, query_bias, key_bias, value_bias, place, inside, column, HAS_BIASES: tl.constexpr
):  # fmt: skip
    """Load the tiles of queries, keys and values."""
    query = _load(query_T, query_bias, place, inside, column, HAS_BIASES)
    key = _load(key_T, key_bias, place, inside, column, HAS_BIASES)
    return query, key, _load(value_T, value_bias, place, inside, column, HAS_BIASES)


@triton.jit
def _weights(  # type: ignore[no-untyped-def]
    query, key, inside, head, distances, scale, reach, before, after, TILE: tl.constexpr, HAS_DISTANCES: tl.constexpr,
    HAS_BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Softmax over the keys of a sentence and band, in float32. Rows after the sentence's end see all of it, else they would be NaN."""
    scores = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    sees = tl.trans(inside)
    distance = tl.arange(0, TILE)[None, :] - tl.arange(0, TILE)[:, None]
    if HAS_DISTANCES:
        place = head * (2 * reach - 1) + reach - 1 + distance
        scores += tl.load(distances + place, mask=inside & sees, other=0.0).to(tl.float32)
    if HAS_BAND:
        sees = sees & ((distance <= after) & (distance >= -before) | (inside == 0))
    scores = tl.where(sees, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    return weights / tl.sum(weights, axis=1)[:, None]


@triton.jit
def _tile_dropout_factors(seed, sentence, head, kept_factor, threshold, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """(TILE, TILE): 0 where a weight is dropped, else 1 / (1 - p). A draw gives four numbers, side by side in a row."""
    draw = tl.arange(0, TILE)[:, None] * 32 + tl.arange(0, TILE // 4)[None, :]
    first, second, third, fourth = tl.philox(tl.load(seed), draw, draw * 0 + sentence, draw * 0 + head, draw * 0)
    bits = tl.reshape(tl.join(tl.join(first, second), tl.join(third, fourth)), (TILE, TILE))
    return dropout_factors(bits, kept_factor, threshold)


@triton.jit
def _sums_by_distance(values, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sum (TILE, TILE) values of queries and keys by distance: (TILE,) for 0 to TILE - 1, and (TILE,) for -TILE to -1.

    Row i is rotated i places to the left, so that each distance is in one column.
    """
    place = tl.arange(0, TILE)[:, None] + tl.arange(0, TILE)[None, :]
    turned = tl.gather(values, place % TILE, axis=1)
    return tl.sum(tl.where(place < TILE, turned, 0.0), axis=0), tl.sum(tl.where(place < TILE, 0.0, turned), axis=0)


@_jit
def _attend(  # type: ignore[no-untyped-def]
    query_T, key_T, value_T, context_T, query_bias, key_bias, value_bias, head_scales, distances, boundaries, sentences, seed, kept_factor,
    threshold, scale, num_heads, stride, reach, before, after,
    WIDTH: tl.constexpr, TILE: tl.constexpr, HAS_DROPOUT: tl.constexpr, HAS_BIASES: tl.constexpr, HAS_HEAD_SCALES: tl.constexpr,
    HAS_DISTANCES: tl.constexpr, HAS_BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sentence, head, row, inside, column = _locate(boundaries, sentences, num_heads, WIDTH, TILE)
    query, key, value = _load_qkv(
        query_T, key_T, value_T, query_bias, key_bias, value_bias, row * stride + column, inside, column, HAS_BIASES
    )  # fmt: skip
    weights = _weights(
        query, key, inside, head, distances, scale, reach, before, after, TILE, HAS_DISTANCES, HAS_BAND, PRECISION
    )  # fmt: skip
    if HAS_DROPOUT:
        weights *= _tile_dropout_factors(seed, sentence, head, kept_factor, threshold, TILE)
    context = tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
    if HAS_HEAD_SCALES:
        context *= tl.load(head_scales + sentence * num_heads + head)
    tl.store(context_T + row * (num_heads * WIDTH) + column, context.to(value.dtype), mask=inside)


@_jit
def _attend_backward(  # type: ignore[no-untyped-def]
    query_T, key_T, value_T, grad_T, grad_query_T, grad_key_T, grad_value_T, sums_by_distance, query_bias, key_bias, value_bias,
    head_scales, distances, boundaries, sentences, seed, kept_factor, threshold, scale, num_heads, stride, reach, before, after,
    grad_stride,
    WIDTH: tl.constexpr, TILE: tl.constexpr, HAS_DROPOUT: tl.constexpr, HAS_BIASES: tl.constexpr, HAS_HEAD_SCALES: tl.constexpr,
    HAS_DISTANCES: tl.constexpr, HAS_BAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sentence, head, row, inside, column = _locate(boundaries, sentences, num_heads, WIDTH, TILE)
    query, key, value = _load_qkv(
        query_T, key_T, value_T, query_bias, key_bias, value_bias, row * stride + column, inside, column, HAS_BIASES
    )  # fmt: skip
    grad = tl.load(grad_T + row * (num_heads * WIDTH) + column, mask=inside, other=0.0)
    if HAS_HEAD_SCALES:
        grad = (grad * tl.load(head_scales + sentence * num_heads + head)).to(query.dtype)
    weights = _weights(
        query, key, inside, head, distances, scale, reach, before, after, TILE, HAS_DISTANCES, HAS_BAND, PRECISION
    )  # fmt: skip
    grad_weights = tl.dot(grad, tl.trans(value), input_precision=PRECISION)
    applied = weights
    if HAS_DROPOUT:
        factors = _tile_dropout_factors(seed, sentence, head, kept_factor, threshold, TILE)
        applied *= factors
        grad_weights *= factors
    place = row * grad_stride + column
    grad_value = tl.dot(tl.trans(applied.to(query.dtype)), grad, input_precision=PRECISION)
    tl.store(grad_value_T + place, grad_value.to(query.dtype), mask=inside)
    grad_scores = weights * (grad_weights - tl.sum(grad_weights * weights, axis=1)[:, None])
    if HAS_DISTANCES:
        ahead, behind = _sums_by_distance(grad_scores, TILE)
        first = sums_by_distance + tl.program_id(0).to(tl.int64) * (2 * TILE) + tl.arange(0, TILE)
        tl.store(first, behind)
        tl.store(first + TILE, ahead)
    grad_scores = (grad_scores * scale).to(query.dtype)
    grad_query = tl.dot(grad_scores, key, input_precision=PRECISION)
    tl.store(grad_query_T + place, grad_query.to(query.dtype), mask=inside)
    grad_key = tl.dot(tl.trans(grad_scores), query, input_precision=PRECISION)
    tl.store(grad_key_T + place, grad_key.to(query.dtype), mask=inside)
