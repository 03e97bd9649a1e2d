"""Steps that nobody waits for: the same numbers, read later; and one that is not finite stops all after it before the optimizer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sentdist.errors import TrainingDiverged
from sentdist.learning import loop
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport, train_steps
from sentdist.learning.objective import Objective
from sentdist.learning.optimization import Optimization
from tests.parity.toy import ToyEncoder, toy_batches
from tests.support import make

OPTIMIZATION = Optimization(num_steps=10, lr=1e-2, warmup_fraction=0.2)


def _engine(*, runs_ahead: bool) -> TorchEngine:
    torch.manual_seed(0)
    engine = TorchEngine(ToyEncoder(), OPTIMIZATION)
    engine.runs_ahead = runs_ahead  # as on a GPU
    return engine


def _steps(engine: TorchEngine, num_steps: int, is_read: Callable[[int], bool] = lambda step: True) -> list[StepReport]:
    return list(train_steps(engine, make.info_nce(temperature=0.05), toy_batches(num_steps), vote=lambda: 2.0, is_read=is_read))


def _state(engine: TorchEngine) -> list[Tensor]:
    parameters = list(engine.learner.parameters())
    return [tensor for parameter in parameters for tensor in (parameter, *engine._optimizer.state[parameter].values())]


def test_steps_that_are_read_later_are_the_same_steps() -> None:
    at_once, later = _engine(runs_ahead=False), _engine(runs_ahead=True)
    expected, found = _steps(at_once, 9), _steps(later, 9, is_read=lambda step: step % 4 == 3)
    for one, other in zip(found, expected, strict=True):
        assert (one.step, one.loss, one.grad_norm, one.lr, one.votes) == (other.step, other.loss, other.grad_norm, other.lr, other.votes)
    assert all(torch.equal(one, other) for one, other in zip(_state(later), _state(at_once), strict=True))


def test_reports_come_after_the_step_that_is_read() -> None:
    drawn: list[int] = []

    ahead = (batch for number, batch in enumerate(toy_batches(7)) if drawn.append(number) is None)
    reports = train_steps(_engine(runs_ahead=True), make.info_nce(), ahead, is_read=lambda step: step == 3)
    assert [(next(reports).step, len(drawn)) for _ in range(4)] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert [report.step for report in reports] == [4, 5, 6], "and at the end"


def test_what_is_read_late_comes_once_the_next_step_has_begun_and_may_have_that_one_read_at_once() -> None:
    expected = _steps(_engine(runs_ahead=False), 9)
    drawn: list[int] = []
    ahead = (batch for number, batch in enumerate(toy_batches(9)) if drawn.append(number) is None)
    held: set[int] = set()
    engine = _engine(runs_ahead=True)
    loss = make.info_nce(temperature=0.05)
    reports = train_steps(engine, loss, ahead, vote=lambda: 2.0, is_read=held.__contains__, is_read_late=lambda step: step in (2, 5))
    found, seen = [], []
    for report in reports:
        found.append((report.step, report.loss, report.grad_norm, report.lr, report.votes))
        seen.append((report.step, report.is_latest, len(drawn)))
        if report.step == 2:
            held.add(3)
    assert found == [(one.step, one.loss, one.grad_norm, one.lr, one.votes) for one in expected]
    assert seen == [
        (0, False, 4),
        (1, False, 4),
        (2, False, 4),
        (3, True, 4),
        *((step, False, 7) for step in (4, 5)),
        *((step, step == 8, 9) for step in (6, 7, 8)),
    ]
    assert all(one.is_latest for one in expected), "who does not run ahead"


def test_a_last_step_that_is_read_late_is_not_lost() -> None:
    reports = train_steps(
        _engine(runs_ahead=True), make.info_nce(), toy_batches(3), is_read=lambda step: False, is_read_late=lambda step: True
    )
    assert [(one.step, one.is_latest) for one in reports] == [(0, False), (1, False), (2, True)]


def test_waiting_for_the_device_counts_once_in_the_last_of_the_steps_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks when it is looked at: five times a step, and once where results are read."""
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=itertools.count().__next__))
    found = _steps(_engine(runs_ahead=True), 9, is_read=lambda step: step % 4 == 3)
    assert [report.seconds.total for report in found] == [5, 5, 5, 6, 5, 5, 5, 6, 6]
    assert [report.seconds.optimizer for report in found] == [1, 1, 1, 2, 1, 1, 1, 2, 2]


def test_waiting_for_other_ranks_is_distinguished_from_what_it_is_a_part_of(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"all": 0.0, "waited": 0.0}
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: seconds["all"]))
    monkeypatch.setattr(loop, "seconds_waited", lambda: seconds["waited"])

    def passes(some: float, *, waiting: float = 0.0) -> None:
        seconds["all"] += some + waiting
        seconds["waited"] += waiting

    class Slow(Objective):
        def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
            passes(4.0, waiting=8.0)
            return make.info_nce(temperature=0.05)(embeddings, batch)

    batches = (batch for batch in toy_batches(3) if passes(1.0) is None)
    reports = train_steps(_engine(runs_ahead=False), Slow(), batches, vote=lambda: passes(16.0, waiting=32.0) or 0.0)
    for report in reports:
        passes(64.0, waiting=128.0)  # what its caller does
        took = report.seconds
        assert (took.data, took.loss, took.optimizer, took.waiting, took.total) == (1.0, 4.0, 16.0, 40.0, 61.0)


class PoisonedAt(Objective):
    """Eq. 1, but for one step: there it is not finite, or only its gradient or only its value is not."""

    def __init__(self, step: int, kind: str) -> None:
        self.left, self.kind = step, kind

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        self.left -= 1
        loss = make.info_nce(temperature=0.05)(embeddings, batch)
        if self.left != -1:
            return loss
        if self.kind == "gradient":
            return loss + (embeddings * 0).sum().sqrt()
        return loss * float("inf") if self.kind == "loss" else loss + float("inf")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("kind", "reported"),
    [
        ("loss", "step 3, rows 0 to 7.*loss inf"),
        ("value", "step 3, rows 0 to 7.*loss inf"),
        ("gradient", "step 3, gradient: found norm nan"),
    ],
)
def test_nothing_moves_from_a_step_on_that_is_not_finite(kind: str, reported: str, late: bool) -> None:
    """Six steps are taken before anybody looks, or five; parameters, moments and their count are those after the third."""
    expected, engine = _engine(runs_ahead=False), _engine(runs_ahead=True)
    list(train_steps(expected, make.info_nce(temperature=0.05), toy_batches(6)[:3]))
    when = {"is_read": lambda step: step == 5, "is_read_late": lambda step: late and step == 3}
    steps = train_steps(engine, PoisonedAt(3, kind), toy_batches(6), **when)
    assert [next(steps).step for _ in range(3)] == [0, 1, 2]
    with pytest.raises(TrainingDiverged, match=reported):
        next(steps)
    assert all(torch.equal(one, other) for one, other in zip(_state(engine), _state(expected), strict=True))
