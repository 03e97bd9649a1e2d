"""How often what lost its process or host is tried again, and what is said when that was too often. Ray is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ray.exceptions import ActorDiedError, WorkerCrashedError

from sentdist.errors import ArtifactLost, DataError, ResourceError
from sentdist.execution.board import actor
from sentdist.execution.board.actor import BoardActor
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.watchdog import Attempts, GroupLostError, end_of
from sentdist.execution.cluster.connection import HostTakenAwayError
from tests.unit.execution.test_board_losses import SAID, STAGE, _submission


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Callable[..., tuple[object, list[StageEvent], list[tuple[Any, ...]]]]]:
    """Drives a stage whose attempts end so; what came of it, the events, and what was noted in its run."""

    def drive(*ends: object, max_failures: int = 1) -> tuple[object, list[StageEvent], list[tuple[Any, ...]]]:
        noted: list[tuple[Any, ...]] = []
        left = list(ends)

        async def attempt(*_: object) -> object:
            end = left.pop(0)
            if isinstance(end, BaseException):
                raise end
            return end

        async def scene() -> tuple[object, list[StageEvent]]:
            board = BoardActor(mock.Mock(), 1.0)
            board._attempt = attempt  # type: ignore[method-assign, assignment]
            try:
                found: object = await board.drive(STAGE, _submission(tmp_path, max_failures=max_failures))
            except Exception as error:
                found = error
            last = board._events.last_number
            return found, (await board._events.after(0, is_over=lambda: True))[0] if last else []

        with mock.patch.object(actor, "note_failed", SimpleNamespace(remote=lambda *given: noted.append(given[1:]))):
            found, events = asyncio.run(scene())
        assert not left
        return found, events, noted

    yield drive


Driven = Callable[..., tuple[object, list[StageEvent], list[tuple[Any, ...]]]]


def test_a_stage_whose_process_is_lost_is_built_again_until_that_was_too_often(driven: Driven) -> None:
    found, events, noted = driven(WorkerCrashedError(), "built")
    assert found == "built" and [event.what for event in events] == ["retry"] and not noted
    found, events, noted = driven(WorkerCrashedError(), WorkerCrashedError())
    assert isinstance(found, ResourceError) and "lost 2 times before its first checkpoint (WorkerCrashedError" in str(found)
    assert [event.what for event in events] == ["retry", "failed"]
    assert [(key, message.partition(":")[0]) for key, message in noted] == [(STAGE.key, "ResourceError")]


def test_a_group_whose_hosts_are_given_notice_again_and_again_is_given_up_in_the_end(driven: Driven) -> None:
    """Not at the second: on spot machines that is no failure. Nor never, where it never gets as far as a checkpoint."""
    gone = GroupLostError(HostTakenAwayError("Training was interrupted by node preemption"))
    found, events, _ = driven(*[gone] * 5, "built")
    assert found == "built" and [event.what for event in events] == ["retry"] * 5
    found, events, noted = driven(*[gone] * 6)
    assert isinstance(found, ResourceError) and [event.what for event in events] == ["retry"] * 5 + ["failed"] and len(noted) == 1
    assert "a host of it was given notice to leave 6 times before its first checkpoint (HostTakenAwayError: Training was" in str(found)
    assert "runtime.checkpoint_every_s" in str(found) and "max_failures" not in str(found)
    found, _, _ = driven(gone, GroupLostError(ActorDiedError()), gone, GroupLostError(ActorDiedError()))
    assert "lost 2 times before its first checkpoint (ActorDiedError" in str(found), "others count as ever"


def test_a_mistake_that_took_a_group_is_final_and_reported_as_it_is(driven: Driven) -> None:
    error = DataError(**SAID)
    found, events, noted = driven(GroupLostError(error), max_failures=5)
    assert found is error and [event.what for event in events] == ["failed"] and len(noted) == 1


def test_a_lost_input_that_took_a_group_is_no_failure(driven: Driven) -> None:
    error = ArtifactLost(**SAID)
    found, events, noted = driven(GroupLostError(error), max_failures=5)
    assert found is error and [event.what for event in events] == ["lost"] and not noted, "who asked for it asks again"
    assert end_of(STAGE, DataError(**SAID)).what == "failed"


@pytest.mark.parametrize(
    ("max_failures", "steps_after_losses", "is_over"),
    [
        (0, [0], True),
        (1, [0], False),
        (1, [0, 0], True),
        (1, [10, 10], True),  # it had got on before the first loss, not between the two
        (1, [10, 20, 30, 40], False),  # a machine that is taken away again and again
        (1, [10, 20, 20], True),
        (2, [10, 10, 11, 11], False),
        (2, [10, 10, 10], True),
        (1, [10, 5], True),  # a checkpoint that is gone is not progress
        (2, [10, 5, 10], True),  # nor is it to come to where it was
    ],
)
def test_losses_are_counted_since_the_last_checkpoint_that_advanced(
    max_failures: int, steps_after_losses: list[int], is_over: bool
) -> None:
    attempts = Attempts(max_failures=max_failures)
    for step in steps_after_losses:
        attempts = attempts.after_loss(step)
    assert attempts.are_over == is_over
    assert ("checkpoint of step" in attempts.next_one) == (max(steps_after_losses) > 0)


@pytest.mark.parametrize(
    ("losses", "is_over"),
    [
        ([(0, True)] * 5, False),
        ([(0, True)] * 6, True),  # without an end it would begin again and again
        ([(step, True) for step in range(20)], False),  # it gets on between two of them
        ([(0, True), (0, True), (0, False)], False),  # the one that was not announced is its first
        ([(0, True), (0, False), (0, True), (0, False)], True),
        ([(0, False), (5, True), (5, False)], False),  # it had got on since
    ],
)
def test_hosts_that_were_given_notice_are_counted_apart(losses: list[tuple[int, bool]], is_over: bool) -> None:
    attempts = Attempts(max_failures=1)
    for step, was_announced in losses:
        assert not attempts.are_over
        attempts = attempts.after_loss(step, was_announced=was_announced)
    assert attempts.are_over == is_over


def test_more_of_them_are_put_up_with_where_more_losses_are() -> None:
    assert Attempts(max_failures=0, num_announced=6).are_over and not Attempts(max_failures=9, num_announced=9).are_over
