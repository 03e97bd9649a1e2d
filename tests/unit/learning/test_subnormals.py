"""Numbers below 1.2e-38 are 0 while a training computes, for a CPU takes a hundred times as long with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sentdist.learning.loop import StepReport
from sentdist.learning.subnormals import subnormals_flushed
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = pytest.mark.usefixtures("one_thread")


def small() -> float:
    """1e-42, or what becomes of it."""
    return float(torch.tensor(1e-42) * 1.0)


def test_inside_they_are_zero_and_outside_what_they_were() -> None:
    assert small() > 0
    with subnormals_flushed():
        with subnormals_flushed():
            assert small() == 0
        assert small() == 0
    assert small() > 0


def test_a_training_in_this_process_flushes_and_leaves_the_process_as_it_was(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    plan, context = tiny_plan(
        tiny_values(tiny_encoder_dir, runtime={"engine": "torch"}), data=write_data(tmp_path / "data"), store=tmp_path / "store"
    )
    found: list[float] = []
    run_local(plan, context, listen=lambda stage, session, event: found.append(small()) if isinstance(event, StepReport) else None)
    assert found and not any(found)
    assert small() > 0
