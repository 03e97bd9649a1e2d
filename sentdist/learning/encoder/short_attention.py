"""Attention within short sentences as kernels of our own, in Triton: a sentence and a head a program, whose weights never leave it.

FlashAttention works in tiles of 128 tokens: sentences of twenty leave most of a tile empty. Here a tile is as long as the sentences it is
for: 16, 32, 64 or 128 tokens. Masks of dropout are counted by sentence, head, row and column (Philox, Salmon et al. 2011), so that forward
and backward pass draw the same, in every number format.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from sentdist.errors import first_line
from sentdist.learning.encoder.batch import sent_to

TILES = (16, 32, 64, 128)  # tokens; below 16 there is no product of matrices
LARGEST_TILE_BYTES = 16 * 2**10  # of one of its operands: five and the weights must lie in a multiprocessor's own memory
FEWEST_PROGRAMS = 4096  # a launch of fewer does not fill a GPU: its sentences join those of the next tile
WARPS = {16: 1, 32: 2, 64: 4, 128: 8}

_ran: set[int] = set()  # tiles
_trouble: list[str] = []


@dataclass(frozen=True, kw_only=True)
class ShortSentences:
    """The sentences of a flat tensor by the tile they fit into, prepared once per step and read by every layer.

    launches: a tile, and the places of its sentences, int32 on the device.
    """

    launches: tuple[tuple[int, Tensor], ...]

    @property
    def tiles(self) -> tuple[int, ...]:
        return tuple(tile for tile, _ in self.launches)


def short_sentences(lengths: Sequence[int], device: torch.device, *, num_heads: int) -> ShortSentences:
    """Prepare them: arithmetic on the host, then a copy for which nobody waits. The longest must fit into the last tile."""
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
    return ShortSentences(launches=tuple(zip(tiles, parts, strict=True)))


def largest_tile(width: int, dtype: torch.dtype) -> int:
    """The longest sentence for which there is a tile, with heads of a width; 0 where there is none."""
    if width not in (16, 32, 64, 128):
        return 0
    return max((tile for tile in TILES if tile * width * dtype.itemsize <= LARGEST_TILE_BYTES), default=0)


def is_quicker(query: Tensor, *, num_sentences: int) -> bool:
    """Than torch's kernels, as measured on an H100: in half precision FlashAttention is where sentences fill its tiles, and where so few
    of them are there that the time to start kernels is all that counts. query: (T, H, head width)."""
    num_tokens, num_heads, _ = query.shape
    if query.dtype == torch.float32:
        return True
    return num_tokens <= TILES[-2] * num_sentences and num_sentences * num_heads >= 2 * FEWEST_PROGRAMS


@cache
def runs_here(device: torch.device, dtype: torch.dtype, width: int, tile: int, *, drops: bool, learns: bool) -> bool:
    """Whether this machine can compile and start the kernels for a tile: that takes a C compiler, and memory within a multiprocessor.
    learns: those of the derivative, too."""
    states = [torch.zeros(1, 1, width, device=device, dtype=dtype, requires_grad=learns) for _ in range(3)]
    bounds = torch.arange(2, dtype=torch.int32, device=device)
    one, seed = ShortSentences(launches=((tile, bounds[:1]),)), torch.zeros(1, dtype=torch.int64, device=device)
    try:
        context = _ShortAttention.apply(*states, bounds, one, 1.0, 0.5 if drops else 0.0, seed)
        if learns:
            torch.autograd.grad(context, states, torch.zeros_like(context))
    except Exception as error:  # whatever a compiler, a driver or Triton says: torch's own kernels do the same, slower
        _trouble.append(f"{type(error).__name__}: {first_line(error)}")
        return False
    _ran.add(tile)
    return True


def in_use() -> str | None:
    """Which of them this process has run, for the records of what it computed."""
    return f"Triton {triton.__version__}, tiles of {' '.join(map(str, sorted(_ran)))}" if _ran else None


def trouble(device: torch.device) -> str | None:
    """Why they cannot run on this machine; None where the smallest does."""
    return None if runs_here(device, torch.float32, 32, TILES[0], drops=False, learns=False) else _trouble[-1]


def short_attention(
    query: Tensor, key: Tensor, value: Tensor, sentences: ShortSentences, *, boundaries: Tensor, scale: float, p: float
) -> Tensor:
    """softmax(q kᵀ · scale) v within each sentence, (T, H, head width), each weight dropped with probability `p`.

    The seed of the masks is drawn from the device's default generator, so a recomputed pass draws them again. boundaries: (S + 1,) int32.
    """
    seed = torch.randint(2**62, (1,), device=query.device) if p > 0.0 else boundaries
    context: Tensor = _ShortAttention.apply(query, key, value, boundaries, sentences, scale, p, seed)
    return context


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, sentences: ShortSentences, scale: float, p: float, seed: Tensor
    ) -> Tensor:
        states = [one.contiguous() for one in (query, key, value)]
        context = torch.empty_like(states[0])
        ctx.save_for_backward(*states, bounds, seed)
        ctx.sentences, ctx.scale, ctx.p = sentences, scale, p
        _launch(_attend, (*states, context), bounds, sentences, seed, scale=scale, p=p)
        return context

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bounds, seed = ctx.saved_tensors
        grads = [torch.empty_like(query) for _ in range(3)]
        _launch(
            _attend_backward, (query, key, value, grad.contiguous(), *grads), bounds, ctx.sentences, seed, scale=ctx.scale, p=ctx.p
        )  # fmt: skip
        return *grads, None, None, None, None, None


def _launch(
    kernel: Any, states: tuple[Tensor, ...], bounds: Tensor, sentences: ShortSentences, seed: Tensor, *, scale: float, p: float
) -> None:
    _, num_heads, width = states[0].shape
    with _current(states[0].device):
        for tile, places in sentences.launches:
            kernel[(len(places) * num_heads,)](
                *states, bounds, places, seed, scale, 1.0 / (1.0 - p), round(p * 2**24), num_heads,
                WIDTH=width, TILE=tile, DROPS=p > 0.0, PRODUCTS=_products(states[0].dtype), num_warps=WARPS[tile], num_stages=1,
            )  # fmt: skip


def _products(dtype: torch.dtype) -> str:
    """How Triton multiplies float32: in TensorFloat-32, or in three such products, which keep the digits of float32."""
    return "tf32" if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest" else "tf32x3"


def _current(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


# Numbers of a batch, of which Triton would make kernels of their own for each multiple of 16.
_compiled: Any = triton.jit(do_not_specialize=["dropped", "num_heads"], do_not_specialize_on_alignment=["sentences"])


@triton.jit
def _place(bounds, sentences, num_heads, WIDTH: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of this program: its sentence and head, which rows lie inside, and where the numbers of its tile are."""
    program = tl.program_id(0)
    sentence, head = tl.load(sentences + program // num_heads), program % num_heads
    start = tl.load(bounds + sentence).to(tl.int64)
    row = tl.arange(0, TILE)
    inside = row < tl.load(bounds + sentence + 1) - start
    place = (start + row)[:, None] * (num_heads * WIDTH) + head * WIDTH + tl.arange(0, WIDTH)[None, :]
    return sentence, head, inside, place


@triton.jit
def _weights(query, key, inside, scale, PRODUCTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The softmax over the keys of a sentence, in float32."""
    scores = tl.dot(query, tl.trans(key), input_precision=PRODUCTS) * scale
    scores = tl.where(inside[None, :], scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    return weights / tl.sum(weights, axis=1)[:, None]


@triton.jit
def _factors(seed, sentence, head, kept_factor, dropped, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """(TILE, TILE): 0 where a weight is dropped, else 1 / (1 - p). Four numbers a draw, which stand side by side in a row."""
    draw = tl.arange(0, TILE)[:, None] * 32 + tl.arange(0, TILE // 4)[None, :]
    first, second, third, fourth = tl.philox(tl.load(seed), draw, draw * 0 + sentence, draw * 0 + head, draw * 0)
    bits = tl.reshape(tl.join(tl.join(first, second), tl.join(third, fourth)), (TILE, TILE))
    return tl.where((bits.to(tl.uint32, bitcast=True) >> 8).to(tl.int32) >= dropped, kept_factor, 0.0)


@_compiled
def _attend(  # type: ignore[no-untyped-def]
    query_T, key_T, value_T, context_T, bounds, sentences, seed, scale, kept_factor, dropped, num_heads,
    WIDTH: tl.constexpr, TILE: tl.constexpr, DROPS: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    sentence, head, inside, place = _place(bounds, sentences, num_heads, WIDTH, TILE)
    query = tl.load(query_T + place, mask=inside[:, None], other=0.0)
    key = tl.load(key_T + place, mask=inside[:, None], other=0.0)
    value = tl.load(value_T + place, mask=inside[:, None], other=0.0)
    weights = _weights(query, key, inside, scale, PRODUCTS)
    if DROPS:
        weights *= _factors(seed, sentence, head, kept_factor, dropped, TILE)
    context = tl.dot(weights.to(value.dtype), value, input_precision=PRODUCTS)
    tl.store(context_T + place, context.to(value.dtype), mask=inside[:, None])


@_compiled
def _attend_backward(  # type: ignore[no-untyped-def]
    query_T, key_T, value_T, grad_T, grad_query_T, grad_key_T, grad_value_T, bounds, sentences, seed, scale, kept_factor, dropped, num_heads,
    WIDTH: tl.constexpr, TILE: tl.constexpr, DROPS: tl.constexpr, PRODUCTS: tl.constexpr,
):  # fmt: skip
    sentence, head, inside, place = _place(bounds, sentences, num_heads, WIDTH, TILE)
    query = tl.load(query_T + place, mask=inside[:, None], other=0.0)
    key = tl.load(key_T + place, mask=inside[:, None], other=0.0)
    value = tl.load(value_T + place, mask=inside[:, None], other=0.0)
    grad = tl.load(grad_T + place, mask=inside[:, None], other=0.0)
    weights = _weights(query, key, inside, scale, PRODUCTS)
    grad_weights = tl.dot(grad, tl.trans(value), input_precision=PRODUCTS)
    applied = weights
    if DROPS:
        factors = _factors(seed, sentence, head, kept_factor, dropped, TILE)
        applied *= factors
        grad_weights *= factors
    grad_value = tl.dot(tl.trans(applied.to(query.dtype)), grad, input_precision=PRODUCTS)
    tl.store(grad_value_T + place, grad_value.to(query.dtype), mask=inside[:, None])
    grad_scores = weights * (grad_weights - tl.sum(grad_weights * weights, axis=1)[:, None]) * scale
    grad_scores = grad_scores.to(query.dtype)
    grad_query = tl.dot(grad_scores, key, input_precision=PRODUCTS)
    tl.store(grad_query_T + place, grad_query.to(query.dtype), mask=inside[:, None])
    grad_key = tl.dot(tl.trans(grad_scores), query, input_precision=PRODUCTS)
    tl.store(grad_key_T + place, grad_key.to(query.dtype), mask=inside[:, None])
