"""The kernels in Triton, compiled for GPUs that are not there: a compiler may refuse what an interpreter takes, or find no room for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.learning.bank_shape import TILES
from sentdist.learning.encoder.private_torch import largest_tile
from tests.support.interpreted import run_with_triton

KIBIBYTE = 2**10
SHARED = {80: 163 * KIBIBYTE, 86: 99 * KIBIBYTE, 90: 227 * KIBIBYTE}  # of a program, by NVIDIA's table of compute capabilities
WIDTHS = (32, 64, 128)
ROWS = 0


def compiled(capability: int, dtype: str, width: int, *tiles: int, cache: Path) -> list[dict[str, Any]]:
    arguments = (str(capability), dtype, str(width), *map(str, tiles))
    return run_with_triton("tests.support.compiled_kernels", *arguments, TRITON_CACHE_DIR=str(cache))


@pytest.mark.in_turns(1)
def test_a_compiler_takes_them(tmp_path: Path) -> None:
    found = compiled(80, "bfloat16", 32, 16, ROWS, cache=tmp_path)
    assert [one["name"] for one in found if one["tile"]] == ["_attend", "_attend_backward"]
    assert {one["name"] for one in found if not one["tile"]} == {"add_norm", "add_norm_backward", "gelu", "gelu_backward"}
    assert all(one["shared"] <= SHARED[80] for one in found)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", WIDTHS)
def test_tiles_have_room(width: int, dtype: str, tmp_path: Path) -> None:
    """Of an A100 and an H100 the largest, of an A10 or L4 the one below it."""
    largest = largest_tile(width, getattr(torch, dtype))
    below = TILES[TILES.index(largest) - 1]
    for capability, tile in ((80, largest), (90, largest), (86, below)):
        for one in compiled(capability, dtype, width, tile, cache=tmp_path / str(capability)):
            assert one["shared"] <= SHARED[capability], (capability, tile, one)
