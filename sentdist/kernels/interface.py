"""Inputs, outputs and functions of the kernels, which C++ and Triton both implement.

Tensors of tokens are (T, W) in float32 or in the type of the products; biases and the norms' weights (W,) in float32. `grad_x` is the
gradient of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Band:
    """A token at place i of its sentence sees those from i - before to i + after. None: all on that side."""

    before: int | None
    after: int | None

    @property
    def is_whole_past(self) -> bool:
        """Whether a token sees itself and all before it, and nothing else."""
        return self.before is None and self.after == 0

    def hidden(self, length: int, device: torch.device) -> Tensor:
        """Return (L, L) bool, true where the token of a row does not see that of a column."""
        place = torch.arange(length, device=device)
        distance = place[None, :] - place[:, None]
        is_hidden = torch.zeros_like(distance, dtype=torch.bool)
        if self.after is not None:
            is_hidden |= distance > self.after
        if self.before is not None:
            is_hidden |= distance < -self.before
        return is_hidden


def band_of(*, is_causal: bool, window: int | None, longest: int) -> Band | None:
    """Return the band of a layer; None if every token sees its whole sentence.

    Args:
        window: as in transformers: tokens before a token, itself included; unless causal, as many after it.
        longest: tokens of the longest sentence; a window that holds it hides nothing.
    """
    reach = None if window is None or window >= longest else window - 1
    if is_causal:
        return Band(before=reach, after=0) if longest > 1 else None
    return None if reach is None else Band(before=reach, after=reach)


Triple = tuple[Tensor, Tensor, Tensor]  # of queries, keys and values
Launches = tuple[tuple[int, Tensor], ...]  # tile size in tokens, and numbers of the sentences for it, int32 on the device


@dataclass(frozen=True, kw_only=True)
class DropoutMask:
    """Which values of a tensor are zeroed, each with probability `p`, by a number drawn from the seed (64 bits) and its place.

    seed: on a GPU a tensor there, (), so that the host need not wait for it.
    """

    seed: int | Tensor
    p: float


@dataclass(frozen=True, kw_only=True)
class AttentionLayout:
    """S sentences in a flat tensor and the heads that attend in each."""

    boundaries: Tensor  # (S + 1,) int32
    num_heads: int
    head_width: int
    scale: float  # of scores
    head_scales: Tensor | None = None  # (S, H) float32, of contexts
    # (H, 2R - 1) float32, added to a score where the key's place minus the query's is 1 - R to R - 1; no sentence is longer than R.
    distances: Tensor | None = None
    band: Band | None = None  # what a token sees of its sentence; None: all
    launches: Launches = ()  # for kernels in Triton


class QueryKeyValue(NamedTuple):
    """(T, H · head width) each, with one stride between rows; and the biases that are added to each row, or None."""

    query: Tensor
    key: Tensor
    value: Tensor
    biases: Triple | None = None


class AddNormOutput(NamedTuple):
    """Result of `add_norm`."""

    out: Tensor  # (T, W) float32
    product_input: Tensor  # the same in the type of the products, for the next one
    saved_for_backward: tuple[Tensor, Tensor] | None  # (T, W) float32 before the norm's weight and bias; (T,) one over the deviation


class AddNormGrads(NamedTuple):
    """Gradients of the inputs of `add_norm`: the residual's in float32, the product's in its type, the others (W,) float32."""

    residual: Tensor
    product: Tensor
    bias: Tensor
    norm_weight: Tensor
    norm_bias: Tensor
    recomputed: Tensor | None  # `product_input` again; None if the norm's bias was not given


class Kernels(Protocol):
    """The functions of `cpp_kernels` and `triton_kernels`."""

    def supports_layer(self, *tensors: Tensor, product_dtype: torch.dtype) -> bool:
        """Whether they take a layer's input and weights, float32 and neither ungathered shards nor fake, with products of this type, and
        can run here.
        """

    def draw_dropout_masks(self, probabilities: Sequence[float], device: torch.device) -> tuple[DropoutMask | None, ...]:
        """Return a mask for each probability, None for 0, with seeds from the device's default generator; nothing is drawn if all are 0."""

    def attention(
        self, qkv: QueryKeyValue, layout: AttentionLayout, dropout_mask: DropoutMask | None, *, save_for_backward: bool
    ) -> tuple[Tensor, Tensor | None]:
        """softmax(q kᵀ · scale + distances), dropped out, times v, times the head's scale, within each sentence and band: (T, H · head
        width).

        save_for_backward: also return the statistics that `attention_backward` needs, if any.
        """

    def attention_backward(
        self,
        qkv: QueryKeyValue,
        layout: AttentionLayout,
        dropout_mask: DropoutMask | None,
        *,
        grad: Tensor,
        statistics: Tensor | None,
        out: Triple,
    ) -> Tensor | None:
        """Write the gradients of queries, keys and values, which share one stride, into `out`, from that of the context, (T, H · head
        width).

        Returns the gradient of the layout's distances, if any.
        """

    def add_norm(
        self,
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

    def add_norm_backward(
        self,
        grad: Tensor,
        grad_product_input: Tensor | None,
        saved: tuple[Tensor, Tensor],
        norm_weight: Tensor,
        dropout_mask: DropoutMask | None,
        *,
        dtype: torch.dtype,
        norm_bias: Tensor | None = None,
    ) -> AddNormGrads:
        """Return the gradients of `add_norm` from those of `out`, (T, W) float32, and of `product_input`, in the type `dtype`, if any.

        norm_bias: of `add_norm`, to recompute its `product_input`, which then need not be kept.
        """

    def gelu(self, product: Tensor, bias: Tensor) -> Tensor:
        """GELU(product + bias), by the error function."""

    def gelu_backward(self, product: Tensor, bias: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Turn `grad`, of the output of `gelu`, into that of the product, in place; return the output again and the bias's gradient."""

    def column_sums(self, values: Tensor) -> Tensor:
        """Σ over rows of (T, W) in float32: (W,)."""

    def addmm(self, sums: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """sums + left @ right in float32; `sums` may be overwritten."""

    def weight_grad(self, grad: Tensor, inputs: Tensor) -> Tensor:
        """gradᵀ @ inputs in float32: (outputs, inputs) of a linear layer's weight. grad: of its outputs."""
