"""Which engine a training runs on; apart from what imports Ray Train, which a training on one worker never needs."""

from __future__ import annotations

from functools import partial

from sentdist.learning.engine import TorchEngine
from sentdist.plan.runtime import Runtime
from sentdist.stages.train import MakeEngine


def engine_of(runtime: Runtime, device: str) -> MakeEngine:
    """The engine that a runtime asks for, still lacking encoder and optimization."""
    if runtime.engine == "torch":
        return partial(TorchEngine, device=device)
    # It looks for a compiler as it is imported: only where it is used.
    from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine

    return partial(DeepSpeedEngine, zero_stage=runtime.zero_stage, device=device)
