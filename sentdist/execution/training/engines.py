"""Which engine a training runs on; apart from what imports Ray Train, which a training on one worker never needs."""

from __future__ import annotations

from functools import partial
from typing import assert_never

from sentdist.learning.engine import TorchEngine
from sentdist.plan.runtime import Runtime
from sentdist.stages.train import MakeEngine


def engine_of(runtime: Runtime, device: str) -> MakeEngine:
    """The engine that a runtime asks for, still lacking encoder and optimization."""
    match runtime.engine:
        case "torch":
            return partial(TorchEngine, device=device)
        case "deepspeed":  # it looks for a compiler as it is imported: only where it is used
            from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine

            return partial(DeepSpeedEngine, zero_stage=runtime.zero_stage, device=device)
    assert_never(runtime.engine)
