"""What kernels take and give, and the functions that those of a processor and those of a GPU both have.

Tensors of tokens are (T, W) in float32 or in the type of the products; biases and norms' weights (W,) in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Thirds = tuple[Tensor, Tensor, Tensor]
Launches = tuple[tuple[int, Tensor], ...]  # a tile of tokens, and the places of the sentences for it, int32 on the device


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Which values of a tensor are zeroed, each with probability `p`, by a number drawn from the seed (64 bits) and its place.

    seed: on a GPU a tensor there, (), so that nobody waits for it.
    """

    seed: int | Tensor
    p: float


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """S sentences in a flat tensor and the heads that attend in each. boundaries: (S + 1,) int32. head_scales: (S, H) float32.

    launches: for a GPU's kernels.
    """

    boundaries: Tensor
    heads: int
    head_width: int
    scale: float
    head_scales: Tensor | None = None
    launches: Launches = ()


class States(NamedTuple):
    """Queries, keys and values, (T, H · head width) each, with one stride between rows; and what is added to each row of them, or None."""

    query: Tensor
    key: Tensor
    value: Tensor
    biases: Thirds | None = None


class AttentionKernel(NamedTuple):
    """Which kernels attention needs. width: of a head. adds: biases; scales: heads. learns: also those of the derivative."""

    device: torch.device
    dtype: torch.dtype
    width: int
    drops: bool
    learns: bool
    adds: bool = False
    scales: bool = False


class Normed(NamedTuple):
    """What `add_norm` gives: (T, W) float32; the same in the type of the products; and, for `add_norm_backward`, (T, W) float32 before
    weight and shift with (T,) one over the standard deviation."""

    out: Tensor
    product_ready: Tensor
    for_derivative: tuple[Tensor, Tensor] | None


class NormGrads(NamedTuple):
    """Gradients of what `add_norm` was given: the residual's in float32, the product's in its type, the others (W,) float32.

    again: `product_ready`, made once more; None where no shift was given.
    """

    residual: Tensor
    product: Tensor
    bias: Tensor
    weight: Tensor
    shift: Tensor
    again: Tensor | None


class Kernels(Protocol):
    """The functions of `calls` and of `gpu_calls`."""

    def serve(self, *tensors: Tensor, between: torch.dtype) -> bool:
        """Whether they take a layer's input and weights, between matrix products of a type: (…, W) float32, on their device, whole and
        real, no share that is not gathered and not what a trace pretends; and whether they are there."""

    def draw_masks(self, dropouts: Sequence[float], device: torch.device) -> tuple[Mask | None, ...]:
        """A mask for each probability, None for 0, with seeds from the device's default generator; nothing is drawn where all are 0."""

    def attention(self, states: States, sentences: Sentences, mask: Mask | None, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """softmax(q kᵀ · scale), dropped out, times v, times the head's scale, within each sentence: (T, H · head width).

        keep: also return what `attention_backward` needs beside it, if anything.
        """

    def attention_backward(
        self, states: States, sentences: Sentences, mask: Mask | None, *, grad: Tensor, statistics: Tensor | None, to: Thirds
    ) -> None:
        """Write the gradients of queries, keys and values, which share one stride, from that of the context, (T, H · head width)."""

    def add_norm(
        self,
        product: Tensor,
        bias: Tensor | None,
        mask: Mask | None,
        residual: Tensor,
        weight: Tensor,
        shift: Tensor,
        *,
        epsilon: float,
        keep: bool,
    ) -> Normed:
        """LayerNorm(dropout(product + bias) + residual), all of one pass over the rows."""

    def add_norm_backward(
        self,
        grad: Tensor,
        more: Tensor | None,
        kept: tuple[Tensor, Tensor],
        weight: Tensor,
        mask: Mask | None,
        *,
        dtype: torch.dtype,
        shift: Tensor | None = None,
    ) -> NormGrads:
        """grad: (T, W) float32, of `out`; more: what else arrives there, of the product's type, or None; kept: `for_derivative`.

        shift: what `add_norm` was given, where its output is wanted again, which then need not be kept.
        """

    def gelu(self, product: Tensor, bias: Tensor) -> Tensor:
        """GELU(product + bias), by the error function."""

    def gelu_backward(self, product: Tensor, bias: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Turn the gradient of what `gelu` gave into that of the product, in place; returns what it gave, made again, and the bias's."""

    def column_sums(self, values: Tensor) -> Tensor:
        """Σ over rows of (T, W) in float32: (W,)."""

    def add_product(self, sums: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """sums + left @ right in float32, where `sums` may be overwritten."""

    def weight_grad(self, grad: Tensor, entered: Tensor) -> Tensor:
        """gradᵀ @ entered in float32: (outputs, inputs) of a linear layer's weight."""


class GpuKernels(Kernels, Protocol):
    """Those of a GPU, each of which is compiled when it is first asked for."""

    def runs_here(self, kernel: AttentionKernel, tiles: tuple[int, ...]) -> bool:
        """Whether this machine can compile and start it with these tiles: that takes a C compiler, and memory within a multiprocessor.
        Not under a trace. Every layer asks in every step: all but the first get what the first was told.

        Raises:
            torch.OutOfMemoryError: the GPU is full, which says nothing about the kernel.
        """

    def trouble(self, device: torch.device) -> str | None:
        """Why they cannot run on this machine; None where the smallest do."""
