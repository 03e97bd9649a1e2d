"""Compiled attention and layers for flat sentences. This module: sizes of tiles, and the kernels in use. Does not import torch."""

from __future__ import annotations

TILES = (16, 32, 64, 128)  # tokens; Triton has no matrix product below 16
LARGEST_TILE_BYTES = 16 * 2**10  # of one of its operands: five and the weights must fit into a multiprocessor's memory


def longest_tile(head_width: int, number_bytes: int) -> int:
    """Return the longest sentence, in tokens, that a tile supports for heads of this width and numbers of so many bytes; 0 if none does."""
    if head_width not in (16, 32, 64, 128):
        return 0
    return max((tile for tile in TILES if tile * head_width * number_bytes <= LARGEST_TILE_BYTES), default=0)
