"""A GPU's kernels for whole layers, as Triton interprets them on a CPU; tests/gpu asks a GPU the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.support.interpreted import run_interpreted

pytestmark = pytest.mark.parity


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


@pytest.mark.parametrize("family", ["bert", pytest.param("mpnet", marks=pytest.mark.nightly)])
def test_a_layer_gives_what_torch_gives(family: str) -> None:
    """Of MPNet the numbers that its distances add have a gradient, too."""
    found = layers(*([] if family == "bert" else ["mpnet"]))[f"layers of {family}"]
    assert found["counted"] == 10, "two layers: trained, frozen, encoded, and twice where they are computed again"
    assert max(found["loss"], found["gradients"], found["encoded"]) < 2e-6, found
    assert found["recomputed"] == 0.0
    assert found["frozen"] == ["1"], "a frozen layer gets no gradient, the one behind it does"


@pytest.mark.nightly
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
