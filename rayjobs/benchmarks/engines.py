"""What DeepSpeed costs: training steps by each engine and ZeRO stage, one worker each, in turn."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rayjobs.benchmarks.interleaved import Peer
from rayjobs.benchmarks.peers import Work, sentdist_training, training_steps

TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class ZeroWork(Work):
    """Training by DeepSpeed. zero_stage: 0 to 3."""

    zero_stage: int


def deepspeed_training(work: ZeroWork) -> Iterator[dict[str, float]]:
    """One optimizer step a draw, by DeepSpeed in a process group of this process alone."""
    import torch.distributed as dist

    from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine

    os.environ["LOCAL_RANK"] = "0"  # without which DeepSpeed does not start
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{Path(folder) / 'group'}", rank=0, world_size=1)
        yield from training_steps(work, partial(DeepSpeedEngine, zero_stage=work.zero_stage, device=work.device))


def engines(work: Work) -> dict[str, Peer[Work]]:
    """By name: plain torch, and DeepSpeed with each ZeRO stage."""
    zero = {f"ZeRO {stage}": Peer(run=deepspeed_training, work=ZeroWork(**vars(work), zero_stage=stage)) for stage in range(4)}
    return {TORCH: Peer(run=sentdist_training, work=work), **zero}  # type: ignore[dict-item]  # a peer runs its own work
