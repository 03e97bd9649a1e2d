"""When a checkpoint is due: after a while, sooner at a dev score, and on all ranks alike."""

from __future__ import annotations

import math
import time

import pytest
import torch
import torch.distributed as dist

from sentdist.execution.training.resume import CheckpointClock
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.loop import StepReport, StepSeconds
from sentdist.plan.sections import Runtime
from tests.parity.processes import run_in_processes

SECONDS = StepSeconds(data=0, forward=0, loss=0, backward=0, optimizer=0, waiting=0)


def report(step: int, *, is_latest: bool = True) -> StepReport:
    return StepReport(step=step, loss=1.0, grad_norm=1.0, lr=1.0, num_sentences=8, seconds=SECONDS, is_latest=is_latest)


@pytest.mark.parametrize(
    ("passed_s", "steps_done", "at_score", "is_due"),
    [
        (99.0, 5, False, False),
        (100.0, 5, False, True),
        (9.0, 5, True, False),
        (10.0, 5, True, True),
        (10.0, 7, True, True),  # a dev score comes at any step
    ],
)
def test_the_votes_at_the_event_decide(passed_s: float, steps_done: int, at_score: bool, is_due: bool) -> None:
    clock = CheckpointClock(Runtime(checkpoint_every_s=100.0, log_every=5))
    event = DevScore(step=steps_done, score=80.0) if at_score else report(steps_done - 1)
    assert clock.is_due(event, votes=passed_s) == is_due


def test_between_two_looks_at_the_clock_nothing_is_due() -> None:
    assert not CheckpointClock(Runtime(checkpoint_every_s=100.0, log_every=5)).is_due(report(6), votes=1e9)


def test_of_an_engine_that_is_ahead_one_is_due_after_the_step_that_it_has_begun() -> None:
    clock = CheckpointClock(Runtime(checkpoint_every_s=100.0, log_every=5))
    said = [(clock.is_due(report(step, is_latest=step == 5), votes=100.0), clock.is_owed) for step in (3, 4, 5)]
    assert said == [(False, False), (False, True), (True, False)]
    assert not clock.is_due(report(6), votes=100.0)


def test_a_checkpoint_restarts_the_clock() -> None:
    clock = CheckpointClock(Runtime(checkpoint_every_s=100.0))
    began = time.monotonic()
    clock.restart()
    assert 0 <= clock.vote() <= time.monotonic() - began


def test_the_first_ranks_clock_is_the_one_that_is_read() -> None:
    first, second = (CheckpointClock(Runtime(), rank=rank) for rank in (0, 1))
    assert first.vote() > 0 and second.vote() == 0


@pytest.mark.parametrize("leaves", [0, 1])
def test_a_host_that_is_about_to_leave_makes_one_checkpoint_due_at_once(leaves: int) -> None:
    leaving = [False]
    runtime = Runtime(checkpoint_every_s=100.0, log_every=5)
    clocks = [CheckpointClock(runtime, rank=rank, is_leaving=lambda rank=rank: leaving[0] and rank == leaves) for rank in (0, 1)]  # type: ignore[misc]

    def are_due() -> list[bool]:
        votes = sum(clock.vote() for clock in clocks)
        return [clock.is_due(report(4), votes=votes) for clock in clocks]

    assert are_due() == [False, False]
    leaving[0] = True
    assert are_due() == [True, True]
    assert are_due() == [True, True], "still owed: none was written"
    for clock in clocks:
        clock.restart()
    assert are_due() == [False, False]


def decide(rank: int, world_size: int) -> list[bool]:
    """Five steps of a training whose group serves tensors on a GPU only; what crosses ranks with the loss goes another way here."""
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.zeros(1))
    with_the_loss = dist.new_group(backend="gloo")
    clock = CheckpointClock(Runtime(checkpoint_every_s=1e-9, log_every=5), rank=rank, is_leaving=lambda: False)
    decided = []
    for step in range(5):
        votes = torch.tensor(clock.vote(), dtype=torch.float64)
        dist.all_reduce(votes, group=with_the_loss)
        decided.append(clock.is_due(report(step), votes=votes.item()))
    return decided


def test_no_rank_is_asked_in_a_collective_of_the_clocks_own() -> None:
    assert run_in_processes(decide, 2, backend="cuda:gloo") == [[False, False, False, False, True]] * 2
    assert math.isinf(CheckpointClock(Runtime(), rank=1, is_leaving=lambda: True).vote())
