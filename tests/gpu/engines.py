"""A short training by some engine, on as many GPUs as there are ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sentdist.learning import gradient_buckets
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from sentdist.recipe.sections import Runtime
from sentdist.run.rank import CheckpointClock
from tests.gpu.waiting import refuse_waiting
from tests.parity.word_batches import word_batches
from tests.support import make

ZERO_STAGES = (0, 1, 2, 3)

MakeEngine = Callable[[Learner, Optimization, torch.device], Engine]
Trained = tuple[list[float], dict[str, Tensor]]


def by_torch(rank: int, world_size: int, folder: str, precision: str) -> Trained:
    """(losses, weights) of eight steps without dropout; the clock of checkpoints is asked at each."""
    return _trained(rank, world_size, folder, precision, lambda learner, how, device: TorchEngine(learner, how, device=device))


def by_torch_with_rows(rank: int, world_size: int, folder: str, precision: str) -> Trained:
    """As `by_torch`, where of word embeddings the rows travel that were read; a batch has half of such a small vocabulary."""
    gradient_buckets.MOST_ROWS = 1.0  # this process is the test's own
    return by_torch(rank, world_size, folder, precision)


def by_deepspeed(rank: int, world_size: int, folder: str, precision: str) -> list[Trained]:
    """The same by each of ZERO_STAGES."""
    from sentdist.run.deepspeed_engine import DeepSpeedEngine

    def zero(stage: int) -> MakeEngine:
        return lambda learner, how, device: DeepSpeedEngine(learner, how, zero_stage=stage, device=device)

    return [_trained(rank, world_size, folder, precision, zero(stage)) for stage in ZERO_STAGES]


def by_deepspeed_without_waiting(rank: int, world_size: int, folder: str) -> int:
    """How many of nine steps come to their end, where torch raises at whatever waits for the GPU between two that are read."""
    from sentdist.run.deepspeed_engine import DeepSpeedEngine

    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    encoder = SentenceEncoder.load(folder)
    objective = make.info_nce(temperature=0.05)
    engine = DeepSpeedEngine(Learner(encoder, objective), Optimization(num_steps=9, precision="bf16"), device=device)

    def refused(number: int, batch: Batch) -> Batch:
        if number in (3, 7):
            refuse_waiting("error" if number == 3 else "default")
        return batch

    batches = (refused(number, batch) for number, batch in enumerate(word_batches(encoder, 9, rank=rank, world_size=world_size)))
    return len(list(train_steps(engine, objective, batches, is_read=lambda step: step in (0, 1, 2, 8))))


def _trained(rank: int, world_size: int, folder: str, precision: str, make_engine: MakeEngine) -> Trained:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
    learner, optimization = Learner(encoder, make.info_nce(temperature=0.05)), Optimization(num_steps=8, lr=1e-3, precision=precision)
    engine = make_engine(learner, optimization, device)
    clock = CheckpointClock(Runtime(checkpoint_every_s=1e-9, log_every=4), rank=rank)
    batches = word_batches(encoder, 8, rank=rank, world_size=world_size)
    reports = list(train_steps(engine, make.info_nce(temperature=0.05), batches, micro_batch=6, vote=clock.vote))
    assert [clock.is_due(report, votes=report.votes) for report in reports] == [False, False, False, True] * 2
    return [report.loss for report in reports], engine.weights()
