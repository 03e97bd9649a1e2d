"""SupMPN moves the parameters equally in every engine, at ZeRO stages 0 to 3."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Optimization
from tests.parity.processes import run_in_processes
from tests.parity.toy import ToyEncoder, toy_batches
from tests.support import make

pytestmark = pytest.mark.parity

NUM_STEPS = 10
OPTIMIZATION = Optimization(num_steps=NUM_STEPS, lr=1e-3, warmup_fraction=0.1, weight_decay=0.1, clip_norm=1.5)
# As in test_engines.py, for temperature 0.05: logits are 20 times as large, and so is what rounding leaves of them.
TOLERANCE = 2e-5
ENGINES = ("torch", 0, 1, 2, 3)


def make_engine(kind: str | int) -> Engine:
    return TorchEngine(ToyEncoder(), OPTIMIZATION) if kind == "torch" else DeepSpeedEngine(ToyEncoder(), OPTIMIZATION, zero_stage=int(kind))


def train(
    rank: int, world_size: int, kinds: tuple[str | int, ...], micro_batch: int | None = None
) -> dict[str | int, tuple[list[float], dict[str, Tensor]]]:
    """(losses, weights) after NUM_STEPS steps with three positives and two negatives an anchor, by engine."""
    results = {}
    for kind in kinds:
        engine = make_engine(kind)
        batches = [
            replace(batch, num_positives=3) for batch in toy_batches(NUM_STEPS, rank=rank, world_size=world_size, num_rows=8, num_columns=6)
        ]
        reports = list(train_steps(engine, make.supmpn(), batches, micro_batch=micro_batch))
        results[kind] = ([report.loss for report in reports], engine.weights())
    return results


@pytest.mark.parametrize(("world_size", "micro_batch"), [(1, None), (2, None), (2, 5)], ids=["one", "two", "two in micro-batches"])
def test_engines_and_world_sizes_agree(world_size: int, micro_batch: int | None) -> None:
    losses, weights = train(0, 1, ("torch",))["torch"]
    assert losses[-1] < losses[0]
    found = run_in_processes(train, world_size, ENGINES, micro_batch)[0]
    for kind in ENGINES:
        found_losses, found_weights = found[kind]
        assert found_losses == pytest.approx(losses, rel=1e-4), kind
        for name, weight in weights.items():
            torch.testing.assert_close(
                found_weights[name], weight, atol=TOLERANCE, rtol=0, msg=lambda text, at=(kind, name): f"{at}: {text}"
            )
