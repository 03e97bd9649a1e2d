"""The kernels in Triton, compiled for GPUs that are not there: a compiler may refuse what an interpreter takes, or find no room for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.learning.encoder.attention_tiles import largest_tile
from sentdist.learning.kernels.tile_sizes import TILES
from tests.support.interpreted import run_with_triton

KIBIBYTE = 2**10
SHARED = {80: 163 * KIBIBYTE, 86: 99 * KIBIBYTE, 90: 227 * KIBIBYTE}  # of a program, by NVIDIA's table of compute capabilities


def compiled(capability: int, dtype: str, width: int, *tiles: int, cache: Path) -> list[dict[str, Any]]:
    arguments = (str(capability), dtype, str(width), *map(str, tiles))
    return run_with_triton("tests.support.compiled_kernels", *arguments, TRITON_CACHE_DIR=str(cache))


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "dtype"), [(32, "float32"), (64, "bfloat16"), (128, "bfloat16")])
def test_tiles_have_room(width: int, dtype: str, tmp_path: Path) -> None:
    """Of an A100 and an H100 the largest, of an A10 or L4 the one below it."""
    largest = largest_tile(width, getattr(torch, dtype))
    below = TILES[TILES.index(largest) - 1]
    for capability, tile in ((80, largest), (90, largest), (86, below)):
        for one in compiled(capability, dtype, width, tile, cache=tmp_path / str(capability)):
            assert one["shared"] <= SHARED[capability], (capability, tile, one)
