"""What a worker of a group does where the board cannot be reached, or where it alone meets an error. Ray and the board are stood in for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError

from sentdist.errors import DataError
from sentdist.execution.board.submissions import EventSink, GroupMember, Submission
from sentdist.execution.board.worker_groups import Order
from sentdist.execution.demand import Demand
from sentdist.execution.training import worker_group as member
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.train_setup import Ranks
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

DEMAND = Demand(way="group", workers=2, num_cpus=1.0, num_gpus=0.0)


class Board:
    """Gives one order, then sends the group away. `breaks`: what each question meets before it is answered."""

    def __init__(self, order: Order, breaks: Callable[[str], Exception | None]) -> None:
        self.order, self.breaks = order, breaks
        self.answers: list[Any] = []
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *args, **kwargs: (name, args))

    def answer(self, question: tuple[str, tuple[Any, ...]]) -> Any:
        name, args = question
        self.asked.append(name)
        if error := self.breaks(name):
            raise error
        if name == "next_order":
            return self.order if args[1] < self.order.number else None
        if name == "finish":
            self.answers.append(args[2])
        return None


@pytest.fixture
def planned(tmp_path: Path, tiny_encoder_dir: Path) -> tuple[Plan, Context]:
    return tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")


def _work(
    monkeypatch: pytest.MonkeyPatch,
    planned: tuple[Plan, Context],
    *,
    breaks: Callable[[str], Exception | None] = lambda name: None,
    rank: int = 0,
    body: Callable[..., Any],
    waits: list[float | None] | None = None,
) -> Board:
    """Have one worker of two do what the board orders."""
    plan, context = planned
    stage: Stage = next(stage for stage in plan.stages if isinstance(stage, Train))
    order = Order(number=1, stage=stage, submission=Submission(context=context, trainings_at_once=1))
    board = Board(order, breaks)

    def answer(question: tuple[str, tuple[Any, ...]], *, timeout: float | None = None) -> Any:
        if waits is not None and question[0] == "next_order":
            waits.append(timeout)
        return board.answer(question)

    monkeypatch.setattr(member.ray, "get", answer)
    monkeypatch.setattr(member, "PAUSE_S", 0.0)
    monkeypatch.setattr(
        member, "ranks_here", lambda: Ranks(rank=rank, world_size=2, exchange=lambda said: [said, said], gather=lambda said: [said, said])
    )
    monkeypatch.setattr(member, "train_rank", body)
    member.build_orders(GroupMember(name="workers-1", demand=DEMAND, body=body, sink=EventSink(board=board)))
    return board


def test_a_question_to_a_board_out_of_reach_is_put_again(monkeypatch: pytest.MonkeyPatch, planned: tuple[Plan, Context]) -> None:
    for question, times in (("next_order", 3), ("finish", 2)):
        left: list[Exception] = [ActorUnavailableError("", None)]

        def breaks(name: str, question: str = question, left: list[Exception] = left) -> Exception | None:
            return left.pop() if name == question and left else None

        board = _work(monkeypatch, planned, breaks=breaks, body=lambda *_: "built")
        assert board.answers == ["built"] and board.asked.count(question) == times
    assert not _work(monkeypatch, planned, breaks=lambda name: ActorDiedError(), body=lambda *_: "built").answers, "a board that is gone"
    with pytest.raises(ActorUnavailableError):  # for long
        _work(monkeypatch, planned, breaks=lambda name: ActorUnavailableError("", None), body=lambda *_: "built")


def test_what_one_rank_alone_meets_ends_its_group_instead_of_leaving_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch, planned: tuple[Plan, Context]
) -> None:
    """The others wait for it in a collective, the first one too: the order stays open, and the board has nothing more to give."""

    def train(*_: object) -> None:
        raise DataError(where="bank", found="a shard that is gone", expected="a bank", remedy="Look.")

    assert not _work(monkeypatch, planned, rank=1, body=train).answers, "what all ranks meet is reported by the first alone"
    waits: list[float | None] = []

    def is_open(name: str) -> Exception | None:
        return GetTimeoutError("the first worker is still busy") if name == "next_order" and waits[-1] is not None else None

    with pytest.raises(DataError, match="a shard that is gone"):
        _work(monkeypatch, planned, rank=1, body=train, breaks=is_open, waits=waits)
    assert waits == [None, member.OTHERS_TELL_S]
