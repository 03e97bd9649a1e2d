"""When a checkpoint is due: after a while, sooner at a dev score, and on all ranks alike."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from torch import Tensor

from sentdist.execution.training.checkpoint_clock import CheckpointClock
from sentdist.plan.runtime import Runtime


@dataclass
class SlowPeer:
    """An engine whose ranks say, on average, that so many seconds have passed."""

    passed_s: float

    def global_mean(self, value: Tensor) -> float:
        return self.passed_s


def _is_due(passed_s: float, *, step: int, at_score: bool) -> bool:
    clock = CheckpointClock(Runtime(checkpoint_every_s=100.0, log_every=5))
    session = SimpleNamespace(engine=SlowPeer(passed_s), progress=SimpleNamespace(step=step))
    return clock.is_due(session, at_score=at_score)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("passed_s", "step", "at_score", "is_due"),
    [
        (99.0, 5, False, False),
        (100.0, 5, False, True),
        (9.0, 5, True, False),
        (10.0, 5, True, True),
        (10.0, 7, True, True),  # a dev score comes at any step
    ],
)
def test_the_mean_of_the_ranks_clocks_decides(passed_s: float, step: int, at_score: bool, is_due: bool) -> None:
    assert _is_due(passed_s, step=step, at_score=at_score) == is_due


def test_between_two_looks_at_the_clock_nothing_is_due() -> None:
    assert not _is_due(1e9, step=7, at_score=False)


def test_a_checkpoint_restarts_the_clock() -> None:
    clock = CheckpointClock(Runtime(checkpoint_every_s=100.0))
    began = time.monotonic()
    clock.restart()
    assert clock.seconds < 1 + time.monotonic() - began


class Ranks:
    """An engine of two ranks, of which the other one is not about to leave."""

    def global_mean(self, value: Tensor) -> float:
        return (float(value) + 1.0) / 2


def test_a_host_that_is_about_to_leave_makes_one_checkpoint_due_at_once() -> None:
    session = SimpleNamespace(engine=Ranks(), progress=SimpleNamespace(step=5))
    leaving = [False]
    clock = CheckpointClock(Runtime(checkpoint_every_s=100.0, log_every=5), is_leaving=lambda: leaving[0])
    assert not clock.is_due(session, at_score=False)  # type: ignore[arg-type]
    leaving[0] = True
    assert clock.is_due(session, at_score=False)  # type: ignore[arg-type]
    assert clock.is_due(session, at_score=False), "still owed: none was written"  # type: ignore[arg-type]
    clock.restart()
    assert not clock.is_due(session, at_score=False)  # type: ignore[arg-type]
