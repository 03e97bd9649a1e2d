"""Sentences by the tile of the Triton kernel that they fit into (kernels/triton_attention.py), and where that kernel is the faster one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sentdist.learning.encoder.batch import sent_to
from sentdist.learning.kernels.interface import Launches
from sentdist.learning.kernels.tile_sizes import TILES, longest_tile

FEWEST_PROGRAMS = 4096  # a launch of fewer does not fill a GPU: its sentences join those of the next tile


def tile_launches(lengths: Sequence[int], device: torch.device, *, num_heads: int) -> Launches:
    """Which sentences a launch with each tile takes: arithmetic on the host, then a copy for which nobody waits. The longest must fit
    into the last tile."""
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
    """As `longest_tile`, of a type."""
    return longest_tile(width, dtype.itemsize)


def is_faster_than_torch(query: Tensor, *, num_sentences: int) -> bool:
    """Whether that kernel is the faster one, as measured on an H100: always in float32. In half precision FlashAttention is faster where
    sentences fill its tiles, and where there are so few that only the time to start kernels counts. query: (T, H, head width)."""
    num_tokens, num_heads, _ = query.shape
    if query.dtype == torch.float32:
        return True
    return num_tokens <= TILES[-2] * num_sentences and num_sentences * num_heads >= 2 * FEWEST_PROGRAMS
