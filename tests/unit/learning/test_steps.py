"""Steps that nobody waits for: batches are made ahead, numbers are read later, and a step that is not finite stops all after it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sentdist.errors import DataError, TrainingDiverged
from sentdist.learning import loop
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport, train_steps
from sentdist.learning.objective import Objective
from sentdist.learning.optimization import Optimization
from sentdist.learning.precision import subnormals_flushed
from sentdist.learning.prefetch import made_ahead
from tests.parity.toy import ToyEncoder, toy_batches
from tests.support import make

pytestmark = pytest.mark.usefixtures("one_thread")

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


def test_waiting_for_the_device_counts_once_in_the_last_of_the_steps_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks when it is looked at: five times a step, and once where results are read."""
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=itertools.count().__next__))
    found = _steps(_engine(runs_ahead=True), 9, is_read=lambda step: step % 4 == 3)
    assert [report.seconds.total for report in found] == [5, 5, 5, 6, 5, 5, 5, 6, 6]
    assert [report.seconds.optimizer for report in found] == [1, 1, 1, 2, 1, 1, 1, 2, 2]


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


@pytest.mark.parametrize("late", [True])
@pytest.mark.parametrize(
    ("kind", "reported"), [("loss", "step 3, rows 0 to 7"), ("value", "step 3, rows 0 to 7"), ("gradient", "step 3, gradient")]
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


def _threads() -> int:
    return sum(thread.name == "batches" for thread in threading.enumerate())


def test_items_come_in_order_and_two_of_them_are_made_before_they_are_drawn() -> None:
    made: list[int] = []
    drawn = 0
    too_many: list[tuple[int, int]] = []
    two_are_made = threading.Event()

    def items() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            if len(made) == 2:
                two_are_made.set()
            if len(made) > drawn + 3:  # two that wait, and the one that is asked for
                too_many.append((len(made), drawn))
            yield number

    with made_ahead(items) as found:
        assert two_are_made.wait(60.0)
        for number, item in enumerate(found):
            assert item == number
            drawn += 1
    assert made == list(range(20)) and not too_many
    assert not _threads()


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise DataError(where="corpus", found="nothing", expected="a sentence", remedy="Look.")

    with made_ahead(items) as found:
        assert next(found) == 1 and next(found) == 2
        with pytest.raises(DataError, match="corpus: found nothing"):
            next(found)
    assert not _threads()


def small() -> float:
    """1e-42, or what becomes of it."""
    return float(torch.tensor(1e-42) * 1.0)


def test_inside_they_are_zero_and_outside_what_they_were() -> None:
    assert small() > 0
    with subnormals_flushed():
        with subnormals_flushed():
            assert small() == 0
        assert small() == 0
    assert small() > 0
