"""A GPU's kernels, as Triton interprets them on a CPU, and compiled for GPUs that are not there; tests/gpu asks a GPU the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.kernels import TILES, longest_tile
from tests.support.attended import BANDS
from tests.support.interpreted import run_interpreted, run_with_triton

pytestmark = [pytest.mark.parity, pytest.mark.nightly]  # the interpreter takes a minute


@cache
def interpreted() -> dict[str, Any]:
    (found,) = run_interpreted("tests.support.interpreted_kernels")
    return found


def test_they_give_what_a_cpu_gives_and_both_passes_draw_the_same_masks() -> None:
    cases = interpreted()["cases"]
    assert [(case["dtype"], case["width"]) for case in cases] == [("torch.float32", 16), ("torch.float32", 64), ("torch.float16", 32)]
    for case in cases:
        assert case["off"] < (3e-3 if case["dtype"] == "torch.float16" else 1e-5), case
        assert case["gradients"] < (5e-3 if case["dtype"] == "torch.float16" else 1e-5), case
        assert case["masks"] < (2e-2 if case["dtype"] == "torch.float16" else 1e-4), case  # other masks would be off by 1


def test_what_a_token_sees_and_what_its_distance_adds_are_as_on_a_cpu() -> None:
    found = interpreted()["bands"]
    assert {(case["name"], case["has_distances"]) for case in found} == {(name, adds) for name in BANDS for adds in (False, True)}
    for case in found:
        assert case["off"] < (5e-3 if case["dtype"] == "torch.float16" else 1e-5), case
        assert case["masks"] < (2e-2 if case["dtype"] == "torch.float16" else 1e-4), case


def test_where_torch_has_no_kernel_sentences_beyond_the_largest_tile_alone_are_grouped() -> None:
    found = interpreted()["long_ones_in_groups"]
    assert found["grouped"] == [[70, 128, 70]] and found["off"] < 1e-5


def test_a_layer_that_is_computed_again_draws_the_same_masks_and_one_that_encodes_draws_none() -> None:
    recomputed = interpreted()["recomputed"]
    assert recomputed["same"] and recomputed["encoded"] < 1e-5


def test_masks_keep_the_mean_and_are_drawn_apart() -> None:
    masks = interpreted()["masks"]
    assert masks["mean"] == pytest.approx(1.0, abs=0.03)
    assert masks["variance"] == pytest.approx(1.0, rel=0.15)
    assert all(abs(one) < 0.12 for one in masks["likeness"]), "sentences, rows and heads"
    assert not masks["again"], "each call draws on"


def test_sentences_go_to_the_tile_they_fit_into_and_a_launch_that_is_too_small_to_the_next() -> None:
    prepared, tiles, quicker = (interpreted()[name] for name in ("launches", "tiles", "quicker"))
    assert prepared["tiles"] == [32, 128] and prepared["counts"] == [400, 101], "3,600 programs are too few for a launch, 4,800 are not"
    assert prepared["places"] == list(range(501))
    used = tiles["used"]
    assert used.startswith("Triton ") and used.endswith(", tiles of 16 32 64 128") and tiles["tried"] == used, "what is tried is not used"
    assert tiles["unavailable"] == [
        "tensors are fake, as while torch traces", None, "RuntimeError: Failed to find C compiler.",
        "raised: Triton Error [CUDA]: out of memory", None,
    ]  # fmt: skip
    assert tiles["strided"]
    assert tiles["largest"] == {
        "torch.float32 8": 0, "torch.float32 16": 128, "torch.float32 32": 128, "torch.float32 64": 64, "torch.float32 128": 32,
        "torch.bfloat16 8": 0, "torch.bfloat16 16": 128, "torch.bfloat16 32": 128, "torch.bfloat16 64": 128, "torch.bfloat16 128": 64,
    }  # fmt: skip
    assert quicker == [False, True, False, True], "in half precision neither few sentences nor long ones"


@cache
def layers(*which: str) -> dict[str, Any]:
    return {case["what"]: case for case in run_interpreted("tests.support.interpreted_layers", *which)}


def test_rows_give_what_torch_gives_and_both_passes_draw_the_same_masks() -> None:
    cases = [case for what, case in layers().items() if what.startswith(("norm", "gelu"))]
    assert len(cases) == 12
    for case in cases:
        bound = 5e-4 if "float16" in case["what"] else 1e-6
        assert case["off"] < bound and case["gradients"] < bound, case
        is_whole = case["what"].endswith("True")
        assert case.get("dropped", 0.0) == (pytest.approx(0.25, abs=0.03) if is_whole else 0.0)
        assert case.get("alike", 0.0) == (pytest.approx(0.25**2 + 0.75**2, abs=0.06) if is_whole else 0.0), "rows and columns draw apart"


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_a_layer_gives_what_torch_gives(family: str) -> None:
    """Of MPNet the numbers that its distances add have a gradient, too."""
    found = layers(*([] if family == "bert" else ["mpnet"]))[f"layers of {family}"]
    assert found["counted"] == 10, "two layers: trained, frozen, encoded, and twice where they are computed again"
    assert max(found["loss"], found["gradients"], found["encoded"]) < 2e-6, found
    assert found["recomputed"] == 0.0
    assert found["frozen"] == ["1"], "a frozen layer gets no gradient, the one behind it does"


def test_gradients_under_dropout_are_those_of_the_drawn_function() -> None:
    found = layers("dropped")["dropped"]
    for slope, gradient in found["slopes"]:
        assert gradient == pytest.approx(slope, rel=0.03)  # of float32
    assert found["recomputed"] == 0.0


def test_each_mask_has_a_seed_of_its_own_and_nothing_is_drawn_for_none() -> None:
    found = layers()["masks"]
    first, last, again = found["seeds"]
    assert first == again != last and found["p"] == [0.1, 0.2]
    assert found["quiet"] == [None, None] and found["undrawn"]


KIBIBYTE = 2**10


SHARED = {80: 163 * KIBIBYTE, 86: 99 * KIBIBYTE, 90: 227 * KIBIBYTE}  # of a program, by NVIDIA's table of compute capabilities


def compiled(capability: int, dtype: str, width: int, *tiles: int, cache: Path) -> list[dict[str, Any]]:
    arguments = (str(capability), dtype, str(width), *map(str, tiles))
    return run_with_triton("tests.support.compiled_kernels", *arguments, TRITON_CACHE_DIR=str(cache))


@pytest.mark.parametrize(("width", "dtype"), [(32, "float32"), (64, "bfloat16"), (128, "bfloat16")])
def test_tiles_have_room(width: int, dtype: str, tmp_path: Path) -> None:
    """Of an A100 and an H100 the largest, of an A10 or L4 the one below it."""
    largest = longest_tile(width, getattr(torch, dtype).itemsize)
    below = TILES[TILES.index(largest) - 1]
    for capability, tile in ((80, largest), (90, largest), (86, below)):
        for one in compiled(capability, dtype, width, tile, cache=tmp_path / str(capability)):
            assert one["shared"] <= SHARED[capability], (capability, tile, one)
