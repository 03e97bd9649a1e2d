"""Numbers below 1.2e-38 are 0 while a training computes, for a CPU takes a hundred times as long with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from sentdist.learning.loop import StepReport
from sentdist.learning.optimization import Optimization, adamw
from sentdist.learning.precision import subnormals_flushed
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


@pytest.mark.parametrize("is_flushed", [False, True])
def test_what_the_optimizer_keeps_of_a_word_that_is_no_longer_shown_ends(is_flushed: bool) -> None:
    """Without it ends at the smallest numbers there are, and stays there."""
    words = nn.Embedding(2, 4)
    optimizer = adamw(words, Optimization(num_steps=1))
    for step in range(1200):
        words.weight.grad = torch.zeros(2, 4)
        words.weight.grad[int(step > 0)] = 1e-3
        if is_flushed:
            with subnormals_flushed():
                optimizer.step()
        else:
            optimizer.step()
    kept, shown = optimizer.state[words.weight]["exp_avg"]
    assert (kept > 0).all() != is_flushed and (kept < 1e-40).all()
    torch.testing.assert_close(shown, torch.full((4,), 1e-3))


def test_a_training_in_this_process_flushes_and_leaves_the_process_as_it_was(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    plan, context = tiny_plan(
        tiny_values(tiny_encoder_dir, runtime={"engine": "torch"}), data=write_data(tmp_path / "data"), store=tmp_path / "store"
    )
    found: list[float] = []
    run_local(plan, context, listen=lambda stage, session, event: found.append(small()) if isinstance(event, StepReport) else None)
    assert found and not any(found)
    assert small() > 0
