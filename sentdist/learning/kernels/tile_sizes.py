"""The tiles of the Triton kernel for attention (triton_attention.py): how long a sentence may be. Without torch, for planning."""

from __future__ import annotations

TILES = (16, 32, 64, 128)  # tokens; below 16 there is no product of matrices
LARGEST_TILE_BYTES = 16 * 2**10  # of one of its operands: five and the weights must lie in a multiprocessor's own memory


def longest_tile(head_width: int, number_bytes: int) -> int:
    """The longest sentence for which there is a tile, with heads of a width and numbers of so many bytes; 0 where there is none."""
    if head_width not in (16, 32, 64, 128):
        return 0
    return max((tile for tile in TILES if tile * head_width * number_bytes <= LARGEST_TILE_BYTES), default=0)
