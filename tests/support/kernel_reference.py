"""What the compiled kernels compute, written anew with numpy and torch in float64."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sentdist.kernels.interface import Band, DropoutMask


def factors(mask: DropoutMask | None, shape: tuple[int, ...]) -> Tensor:
    """What the values of a tensor are multiplied by, in float64: 0, or 1 / (1 - p)."""
    if mask is None:
        return torch.ones(shape, dtype=torch.float64)
    place = np.arange(int(np.prod(shape)), dtype=np.uint64)
    low, high = np.uint32(mask.seed & 0xFFFFFFFF), (mask.seed >> 32) + (place >> np.uint64(32)) * np.uint64(0x9E3779B9)
    drawn = _mixed(_mixed(place.astype(np.uint32) ^ low) + high.astype(np.uint32))
    kept = drawn >= np.uint32(round(mask.p * 2**32))
    return torch.from_numpy(kept.reshape(shape)).double() / (1.0 - mask.p)


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def attended(
    states: tuple[Tensor, Tensor, Tensor],
    lengths: list[int],
    *,
    heads: int,
    scale: float,
    mask: DropoutMask | None,
    head_scales: Tensor | None,
    distances: Tensor | None = None,
    band: Band | None = None,
) -> Tensor:
    """softmax(q kᵀ · scale + distances) over the band, dropped out, times v, times the head's scale, sentence by sentence and head by head;
    (T, H · head width)."""
    width = states[0].shape[1] // heads
    drawn = factors(mask, (sum(heads * length**2 for length in lengths),))
    sentences, first, place = [], 0, 0
    for number, length in enumerate(lengths):
        of_heads = []
        for head in range(heads):
            query, key, value = (one[first : first + length, head * width : (head + 1) * width] for one in states)
            scores = query @ key.T * scale
            if distances is not None:
                place_of = torch.arange(length)
                scores = scores + distances[head, place_of - place_of[:, None] + distances.shape[1] // 2]
            if band is not None:
                scores = scores.masked_fill(band.hidden(length, scores.device), -torch.inf)
            weights = torch.softmax(scores, dim=1) * drawn[place : place + length**2].view(length, length)
            of_heads.append(weights @ value * (1.0 if head_scales is None else head_scales[number, head]))
            place += length**2
        sentences.append(torch.cat(of_heads, dim=1))
        first += length
    return torch.cat(sentences)
