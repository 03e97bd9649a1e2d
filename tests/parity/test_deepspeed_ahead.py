"""DeepSpeed at ZeRO stage 0 runs ahead of its device as plain torch does: the same numbers, read later, and nobody who waits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sentdist.errors import TrainingDiverged
from sentdist.execution.training.deepspeed_engine import ZERO_STAGES, DeepSpeedEngine, can_run_ahead
from sentdist.learning.loop import train_steps
from sentdist.learning.objective import Objective
from tests.parity.processes import run_in_processes
from tests.parity.test_engines import OPTIMIZATION
from tests.parity.toy import ToyBank, ToyEncoder, toy_batches
from tests.support import make
from tests.unit.learning.test_run_ahead import PoisonedAt

pytestmark = pytest.mark.parity

State = tuple[dict[str, Tensor], list[Tensor]]


def _engine(*, runs_ahead: bool) -> DeepSpeedEngine:
    engine = DeepSpeedEngine(ToyEncoder(), OPTIMIZATION, zero_stage=0)
    engine.runs_ahead = runs_ahead  # as on a GPU
    return engine


def _state(engine: DeepSpeedEngine) -> State:
    states = engine._engine.optimizer.state
    return engine.weights(), [tensor for parameter in engine.learner.parameters() for tensor in states[parameter].values()]


def _equal(one: State, other: State) -> bool:
    return all(torch.equal(one[0][name], weight) for name, weight in other[0].items()) and all(map(torch.equal, one[1], other[1]))


def at_once_and_later(rank: int, world_size: int) -> list[tuple[list[tuple[float, ...]], State]]:
    """What the reports say, and weights and moments, of nine steps that are read one by one, and of which every fourth is read."""
    found = []
    for runs_ahead in (False, True):
        engine = _engine(runs_ahead=runs_ahead)
        batches = toy_batches(9, rank=rank, world_size=world_size)
        reports = list(train_steps(engine, make.rcl(bank=ToyBank(2)), batches, vote=lambda: rank + 1.0, is_read=lambda step: step % 4 == 3))
        found.append(([(one.step, one.loss, one.grad_norm, one.lr, one.votes) for one in reports], _state(engine)))
    return found


def test_steps_that_are_read_later_are_the_same_steps() -> None:
    for at_once, later in run_in_processes(at_once_and_later, 2):
        assert later[0] == at_once[0] and len(later[0]) == 9
        norms = [norm for _, _, norm, *_ in later[0]]
        assert OPTIMIZATION.clip_norm is not None and min(norms) < OPTIMIZATION.clip_norm < max(norms), "clipping should take part"
        assert _equal(later[1], at_once[1])


def poisoned(rank: int, world_size: int) -> list[tuple[str, bool]]:
    """What is reported of a step that is not finite, on one rank alone, and whether the state is that of before."""
    found = []
    for kind in ("loss", "gradient"):
        expected, engine = _engine(runs_ahead=False), _engine(runs_ahead=True)
        batches = toy_batches(6, rank=rank, world_size=world_size)
        list(train_steps(expected, make.info_nce(temperature=0.05), batches[:3]))
        objective: Objective = PoisonedAt(3, kind) if rank == world_size - 1 else make.info_nce(temperature=0.05)
        with pytest.raises(TrainingDiverged) as raised:
            list(train_steps(engine, objective, batches, is_read=lambda step: step == 5))
        found.append((raised.value.where, _equal(_state(engine), _state(expected))))
    return found


def test_nothing_moves_from_a_step_on_that_is_not_finite() -> None:
    for rank, reported in enumerate(run_in_processes(poisoned, 2)):
        rows = f"step 3, rows {rank * 4} to {rank * 4 + 3} of the batch"
        assert reported == [(rows, True), ("step 3, gradient", True)]


def test_on_a_gpu_stage_0_runs_ahead() -> None:
    for device, stages in (("cuda:1", [0]), ("cpu", [])):
        assert [stage for stage in ZERO_STAGES if can_run_ahead(torch.device(device), zero_stage=stage)] == stages
