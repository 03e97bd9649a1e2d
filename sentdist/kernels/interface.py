"""Inputs and outputs of the kernels, which C++ and Triton both implement.

Tensors of tokens are (T, W) in float32 or in the type of the products; biases and the norms' weights (W,) in float32. `grad_x` is the
gradient of x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

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


Kernels = Any  # the module cpp_kernels, which documents the functions of both, or triton_kernels
