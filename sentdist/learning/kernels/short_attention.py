"""Attention within short sentences in Triton: a sentence and a head a program, whose weights never leave it.

FlashAttention works in tiles of 128 tokens: sentences of twenty leave most of a tile empty. Here a tile is as long as the sentences it is
for: 16, 32, 64 or 128 tokens. Masks of dropout are counted by sentence, head, row and column (Philox, Salmon et al. 2011), so that forward
and backward pass draw the same, in every number format.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sentdist.learning.kernels.gpu_common import dropout_numbers, kept_or_not, on_device
from sentdist.learning.kernels.values import Mask, Sentences, States, Thirds

WARPS = {16: 1, 32: 2, 64: 4, 128: 8}


def attend(states: States, sentences: Sentences, mask: Mask | None, context: Tensor) -> None:
    """Write the context, (T, H · head width)."""
    _launch(_attend, (*states[:3], context), states, sentences, mask)


def attend_backward(states: States, sentences: Sentences, mask: Mask | None, grad: Tensor, to: Thirds) -> None:
    """Write the gradients of queries, keys and values from that of the context."""
    assert grad.is_contiguous() and all(one.stride() == (to[0].stride(0), 1) for one in to)
    _launch(_attend_backward, (*states[:3], grad, *to), states, sentences, mask, to[0].stride(0))


def _launch(kernel: Any, tensors: tuple[Tensor, ...], states: States, sentences: Sentences, mask: Mask | None, *strides: int) -> None:
    query, unused = states.query, sentences.boundaries
    assert all(one.stride() == (query.stride(0), 1) for one in states[:3])
    biases = states.biases or (unused,) * 3
    scales = unused if sentences.head_scales is None else sentences.head_scales
    with on_device(query):
        for tile, places in sentences.launches:
            kernel[(len(places) * sentences.heads,)](
                *tensors, *biases, scales, sentences.boundaries, places, *dropout_numbers(mask, unused), sentences.scale, sentences.heads,
                query.stride(0), *strides,
                WIDTH=sentences.head_width, TILE=tile, DROPS=mask is not None, ADDS=states.biases is not None,
                SCALES=sentences.head_scales is not None, PRODUCTS=float32_products(), num_warps=WARPS[tile], num_stages=1,
            )  # fmt: skip


def float32_products() -> str:
    """How Triton multiplies float32: in TensorFloat-32, or in three such products, which keep the digits of float32."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


# Numbers of a batch, of which Triton would make kernels of their own for each multiple of 16.
_compiled: Any = triton.jit(do_not_specialize=["dropped", "heads"], do_not_specialize_on_alignment=["sentences", "seed"])


@triton.jit
def _place(bounds, sentences, heads, WIDTH: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of this program: its sentence and head, its rows, which of them lie inside, and its columns."""
    program = tl.program_id(0)
    sentence, head = tl.load(sentences + program // heads), program % heads
    start = tl.load(bounds + sentence).to(tl.int64)
    row = tl.arange(0, TILE)
    inside = row < tl.load(bounds + sentence + 1) - start
    return sentence, head, (start + row)[:, None], inside[:, None], head * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _state(rows, bias, place, inside, column, ADDS: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of queries, keys or values."""
    state = tl.load(rows + place, mask=inside, other=0.0)
    if ADDS:
        state = (state.to(tl.float32) + tl.load(bias + column)).to(state.dtype)
    return state


@triton.jit
def _states(  # type: ignore[no-untyped-def]
    query_T, key_T, value_T, query_bias, key_bias, value_bias, place, inside, column, ADDS: tl.constexpr
):  # fmt: skip
    """The tiles of queries, keys and values."""
    query = _state(query_T, query_bias, place, inside, column, ADDS)
    key = _state(key_T, key_bias, place, inside, column, ADDS)
    return query, key, _state(value_T, value_bias, place, inside, column, ADDS)


@triton.jit
def _weights(query, key, inside, scale, PRODUCTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The softmax over the keys of a sentence, in float32."""
    scores = tl.dot(query, tl.trans(key), input_precision=PRODUCTS) * scale
    scores = tl.where(tl.trans(inside), scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    return weights / tl.sum(weights, axis=1)[:, None]


@triton.jit
def _factors(seed, sentence, head, kept_factor, dropped, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """(TILE, TILE): 0 where a weight is dropped, else 1 / (1 - p). Four numbers a draw, which stand side by side in a row."""
    draw = tl.arange(0, TILE)[:, None] * 32 + tl.arange(0, TILE // 4)[None, :]
    first, second, third, fourth = tl.philox(tl.load(seed), draw, draw * 0 + sentence, draw * 0 + head, draw * 0)
    bits = tl.reshape(tl.join(tl.join(first, second), tl.join(third, fourth)), (TILE, TILE))
    return kept_or_not(bits, kept_factor, dropped)


@_compiled
def _attend(  # type: ignore[no-untyped-def]
    query_T, key_T, value_T, context_T, query_bias, key_bias, value_bias, head_scales, bounds, sentences, seed, kept_factor, dropped, scale, heads,
    stride,
    WIDTH: tl.constexpr, TILE: tl.constexpr, DROPS: tl.constexpr, ADDS: tl.constexpr, SCALES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    sentence, head, row, inside, column = _place(bounds, sentences, heads, WIDTH, TILE)
    query, key, value = _states(
        query_T, key_T, value_T, query_bias, key_bias, value_bias, row * stride + column, inside, column, ADDS
    )  # fmt: skip
    weights = _weights(query, key, inside, scale, PRODUCTS)
    if DROPS:
        weights *= _factors(seed, sentence, head, kept_factor, dropped, TILE)
    context = tl.dot(weights.to(value.dtype), value, input_precision=PRODUCTS)
    if SCALES:
        context *= tl.load(head_scales + sentence * heads + head)
    tl.store(context_T + row * (heads * WIDTH) + column, context.to(value.dtype), mask=inside)


@_compiled
def _attend_backward(  # type: ignore[no-untyped-def]
    query_T, key_T, value_T, grad_T, grad_query_T, grad_key_T, grad_value_T, query_bias, key_bias, value_bias, head_scales, bounds, sentences, seed,
    kept_factor, dropped, scale, heads, stride, grad_stride,
    WIDTH: tl.constexpr, TILE: tl.constexpr, DROPS: tl.constexpr, ADDS: tl.constexpr, SCALES: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    sentence, head, row, inside, column = _place(bounds, sentences, heads, WIDTH, TILE)
    query, key, value = _states(
        query_T, key_T, value_T, query_bias, key_bias, value_bias, row * stride + column, inside, column, ADDS
    )  # fmt: skip
    grad = tl.load(grad_T + row * (heads * WIDTH) + column, mask=inside, other=0.0)
    if SCALES:
        grad = (grad * tl.load(head_scales + sentence * heads + head)).to(query.dtype)
    weights = _weights(query, key, inside, scale, PRODUCTS)
    grad_weights = tl.dot(grad, tl.trans(value), input_precision=PRODUCTS)
    applied = weights
    if DROPS:
        factors = _factors(seed, sentence, head, kept_factor, dropped, TILE)
        applied *= factors
        grad_weights *= factors
    place = row * grad_stride + column
    grad_value = tl.dot(tl.trans(applied.to(query.dtype)), grad, input_precision=PRODUCTS)
    tl.store(grad_value_T + place, grad_value.to(query.dtype), mask=inside)
    grad_scores = weights * (grad_weights - tl.sum(grad_weights * weights, axis=1)[:, None]) * scale
    grad_scores = grad_scores.to(query.dtype)
    grad_query = tl.dot(grad_scores, key, input_precision=PRODUCTS)
    tl.store(grad_query_T + place, grad_query.to(query.dtype), mask=inside)
    grad_key = tl.dot(tl.trans(grad_scores), query, input_precision=PRODUCTS)
    tl.store(grad_key_T + place, grad_key.to(query.dtype), mask=inside)
