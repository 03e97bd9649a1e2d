"""A short training by every engine, on as many GPUs as there are ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from sentdist.execution.training.checkpoint_clock import CheckpointClock
from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.execution.training.worker_group import GPU_BACKEND
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.learner import Learner
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Optimization
from sentdist.plan.runtime import Runtime
from tests.parity.word_batches import word_batches
from tests.support import make

BACKEND = GPU_BACKEND
KINDS: tuple[str | int, ...] = ("torch", 0, 1, 2, 3)


def train_on_gpus(rank: int, world_size: int, folder: str, precision: str) -> dict[str | int, tuple[list[float], dict[str, Tensor]]]:
    """(losses, weights) of eight steps without dropout, by engine; the clock of checkpoints is asked at each."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    found = {}
    for kind in KINDS:
        encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
        learner, optimization = Learner(encoder, make.info_nce(temperature=0.05)), Optimization(num_steps=8, lr=1e-3, precision=precision)
        engine: Engine = (
            TorchEngine(learner, optimization, device=device)
            if kind == "torch"
            else DeepSpeedEngine(learner, optimization, zero_stage=int(kind), device=device)
        )
        clock = CheckpointClock(Runtime(checkpoint_every_s=1e-9, log_every=4), rank=rank)
        batches = word_batches(encoder, 8, rank=rank, world_size=world_size)
        reports = list(train_steps(engine, make.info_nce(temperature=0.05), batches, micro_batch=6, vote=clock.vote))
        assert [clock.is_due(report, votes=report.votes) for report in reports] == [False, False, False, True] * 2
        found[kind] = ([report.loss for report in reports], engine.weights())
    return found
