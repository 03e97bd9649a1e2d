"""What a board, its clients and its printer do when processes, boards or inputs are lost. Ray is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayTaskError, WorkerCrashedError

from sentdist.errors import ArtifactLost, DataError, ResourceError, SentdistError, SweepStopped
from sentdist.execution.board import actor, client
from sentdist.execution.board import actor as stage_task
from sentdist.execution.board import client as printer
from sentdist.execution.board.actor import BoardActor
from sentdist.execution.board.client import BoardClient
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.submissions import Submission, Work, most_pools, stopped
from sentdist.execution.board.watchdog import Attempts, GroupLostError, end_of, may_be_a_lost_peer
from sentdist.execution.cluster.address import HEAD
from sentdist.execution.cluster.connection import HostTakenAwayError
from sentdist.execution.demand import Demand
from sentdist.execution.plan_facts import SweepProgress
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support.waiting import wait_for

STAGE = RowsCorpus(source="toy", source_revision="1")
SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}
Driven = Callable[..., tuple[object, list[StageEvent], list[tuple[Any, ...]]]]


def _demand(way: Literal["task", "group", "pool"]) -> Demand:
    return Demand(way=way, workers=1, num_cpus=1.0, num_gpus=0.0)


def _submission(root: Path, *, max_failures: int = 1) -> Submission:
    runtime = Runtime(engine="torch", max_failures=max_failures)
    return Submission(context=Context(store=ArtifactStore(root), runtime=runtime), sweep="mine")


@pytest.fixture
def driven(tmp_path: Path) -> Driven:
    """Drives a stage whose attempts end so; what came of it, the events, and what was noted in its run."""

    def drive(*ends: object, max_failures: int = 1) -> tuple[object, list[StageEvent], list[tuple[Any, ...]]]:
        noted: list[tuple[Any, ...]] = []

        async def scene() -> tuple[object, list[StageEvent]]:
            board = BoardActor(mock.Mock(), 1.0)
            board._attempt = mock.AsyncMock(side_effect=ends)  # type: ignore[method-assign]
            try:
                found: object = await board.drive(STAGE, _submission(tmp_path, max_failures=max_failures))
            except Exception as error:
                found = error
            assert board._attempt.await_count == len(ends)
            last = board._events.last_number
            return found, (await board._events.after(0, is_over=lambda: True))[0] if last else []

        with mock.patch.object(actor, "note_failed", SimpleNamespace(remote=lambda *given: noted.append(given[1:]))):
            found, events = asyncio.run(scene())
        return found, events, noted

    return drive


def test_a_process_that_has_started_waits_for_room_no_more_and_one_that_drives_others_does() -> None:
    async def scene(way: Literal["task", "pool"]) -> bool:
        board = BoardActor(mock.Mock(), 1.0)
        board._waiting.add(STAGE.key)
        board._work.add(Work(ref=mock.Mock(), stage=STAGE, demand=_demand(way)))
        await board.post(StageEvent(key=STAGE.key, kind="corpus", label="toy", what="started"))
        return STAGE.key in board._waiting

    assert (asyncio.run(scene("task")), asyncio.run(scene("pool"))) == (False, True)


def test_only_what_has_peers_can_have_lost_one() -> None:
    closed = RuntimeError("connection closed by peer")
    assert may_be_a_lost_peer(closed, _demand("group")) and may_be_a_lost_peer(closed, _demand("pool"))
    assert not may_be_a_lost_peer(closed, _demand("task")) and not may_be_a_lost_peer(DataError(**SAID), _demand("group"))


@pytest.mark.parametrize(("check", "reported"), [(None, ValueError), (stopped("mine"), SweepStopped)])
def test_work_that_was_stopped_ends_as_stopped_whatever_it_raised(
    check: SentdistError | None, reported: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = {"last_number": 0, "request": ["wanted"], "events": None, "check": check, "wanted": ValueError("of an ended process")}

    def get(ref: str) -> Any:
        if isinstance(answer := answers[ref], Exception):
            raise RayTaskError("f", "trace", answer)
        return answer

    def remote(name: str) -> Any:
        return SimpleNamespace(remote=lambda *_: name)

    monkeypatch.setattr(client, "ray", SimpleNamespace(get=get, wait=lambda refs, **_: (["wanted"], ["events"])))
    driver: Any = BoardClient.__new__(BoardClient)
    driver.submission, driver.actor = _submission(tmp_path), SimpleNamespace(**{name: remote(name) for name in answers})
    with pytest.raises(reported):
        list(driver.follow(STAGE))


def test_a_group_is_interrupted_first_and_ended_by_force_where_that_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Ray Train's controller gives back what its workers have reserved; what waits in a library ends by force alone."""
    forces: list[bool] = []
    monkeypatch.setattr(stage_task.ray, "cancel", lambda task, force: forces.append(force))

    async def scene(way: Literal["task", "group", "pool"], ends: bool) -> None:
        async def waited(tasks: object, timeout: float) -> tuple[list[int], list[int]]:
            return ([1], []) if ends else ([], [1])

        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patched:
            patched.setattr(stage_task.asyncio, "wait", waited)
            patched.setattr(stage_task.asyncio, "wrap_future", lambda _: future)
            await stage_task.abort(mock.Mock(), _demand(way))

    ways: tuple[tuple[Literal["task", "group", "pool"], bool], ...] = (("task", True), ("pool", True), ("group", False))
    for way, by_force in ways:
        for ends in (True, False):
            forces.clear()
            asyncio.run(scene(way, ends))
            assert forces == [by_force] + [True] * (not ends)


def test_a_printer_goes_on_with_the_board_that_takes_the_place_of_a_dead_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The events of the fresh one are numbered from zero."""
    asked: list[int | None] = []
    event = StageEvent(key="k", kind="scores", label="of the fresh one", what="finished", seconds=1.0)
    monkeypatch.setattr(printer, "LOOK_UP_S", 0.01)

    def get(since: int | None) -> tuple[list[StageEvent], int]:
        if since is None:
            return [], 7
        if since == 7:
            raise ActorUnavailableError("it died", b"0" * 16)
        return ([event], 1) if since == 0 else ([], since)

    def events(since: int | None) -> int | None:
        asked.append(since)
        return since

    monkeypatch.setattr(printer, "ray", SimpleNamespace(wait=lambda refs, timeout: (refs, []) if refs[0] != 1 else ([], refs), get=get))
    board: Any = SimpleNamespace(events=events, submission=_submission(tmp_path), reopen=mock.Mock())
    lines: list[str] = []
    with printer.printed_events(board, SweepProgress({}), lines.append):
        wait_for(lambda: bool(lines), what="the fresh board's event")
    assert asked[:4] == [None, 7, 0, 1] and board.reopen.call_count == 1 and "of the fresh one" in lines[0]


def test_a_board_is_that_of_its_store_and_of_the_code_that_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a job would have its work done by the older code of another."""
    names = set()
    for digest in ("a" * 40, "b" * 40):
        monkeypatch.setattr(client, "code_digest", lambda digest=digest: digest)
        names |= {client.board_name(ArtifactStore(tmp_path / place)) for place in ("one", "two", "one")}
    assert len(names) == 4 and all(name.startswith(client.BOARDS) for name in names)


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


def test_losses_are_counted_since_the_last_checkpoint_that_advanced() -> None:
    for max_failures, steps, is_over in (
        (0, [0], True),
        (1, [0], False),
        (1, [10, 10], True),  # it had got on before the first loss, not between the two
        (1, [10, 20, 30, 40], False),  # a machine that is taken away again and again
        (2, [10, 10, 11, 11], False),
        (1, [10, 5], True),  # a checkpoint that is gone is not progress
        (2, [10, 5, 10], True),  # nor is it to come to where it was
    ):
        attempts = Attempts(max_failures=max_failures)
        for step in steps:
            attempts = attempts.after_loss(step)
        assert attempts.are_over == is_over, steps
        assert ("checkpoint of step" in attempts.next_one) == (max(steps) > 0)


def test_hosts_that_were_given_notice_are_counted_apart() -> None:
    losses: tuple[tuple[list[tuple[int, bool]], bool], ...] = (
        ([(0, True)] * 5, False),
        ([(0, True)] * 6, True),  # without an end it would begin again and again
        ([(step, True) for step in range(20)], False),  # it gets on between two of them
        ([(0, True), (0, False), (0, True), (0, False)], True),
        ([(0, False), (5, True), (5, False)], False),  # it had got on since
    )
    for lost, is_over in losses:
        attempts = Attempts(max_failures=1)
        for step, was_announced in lost:
            assert not attempts.are_over
            attempts = attempts.after_loss(step, was_announced=was_announced)
        assert attempts.are_over == is_over, lost
    assert Attempts(max_failures=0, num_announced=6).are_over and not Attempts(max_failures=9, num_announced=9).are_over


def test_a_head_that_is_gone_is_reported_once_before_ray_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([True, False, True, *[False] * 9])
    monkeypatch.setattr(printer, "HEAD_S", 0.0)
    monkeypatch.setattr(printer, "takes_connections", lambda _: next(looks))
    monkeypatch.setattr(printer, "ray", SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(gcs_address="127.0.0.1:9")))
    head = printer._Head("mine")
    said = [head.notice() for _ in range(9)]
    assert [number for number, line in enumerate(said) if line] == [4], "one failure may be a busy head"
    assert "127.0.0.1:9" in str(said[4]) and "sentdist up" in str(said[4])


def test_a_lost_input_that_took_a_group_is_no_failure_and_a_mistake_is_final(driven: Driven) -> None:
    mistake, lost = DataError(**SAID), ArtifactLost(**SAID)
    found, events, noted = driven(GroupLostError(mistake), max_failures=5)
    assert found is mistake and [event.what for event in events] == ["failed"] and len(noted) == 1
    found, events, noted = driven(GroupLostError(lost), max_failures=5)
    assert found is lost and [event.what for event in events] == ["lost"] and not noted, "who asked for it asks again"
    assert end_of(STAGE, mistake).what == "failed"


def test_a_process_of_its_own_gets_the_room_of_idle_groups_and_beats_as_the_board_listens(tmp_path: Path) -> None:
    order = mock.Mock(start=mock.AsyncMock(return_value="built"), make_room=mock.AsyncMock())

    async def scene(is_room: bool) -> None:
        board = BoardActor(mock.Mock(), 1.0, 90.0)
        board._groups.make_room = order.make_room  # type: ignore[method-assign]
        with mock.patch.object(actor, "has_room", lambda demand: is_room):
            assert await board._attempt(STAGE, _submission(tmp_path), _demand("task")) == "built"

    with mock.patch.object(actor, "start", order.start), mock.patch.object(actor, "_this_board"):
        asyncio.run(scene(True))
        asyncio.run(scene(False))
    assert [call[0] for call in order.mock_calls] == ["start", "make_room", "start"]
    assert 3 * order.start.call_args.args[-1].every_s < 90.0
    elastic, fixed = (Context(store=ArtifactStore(tmp_path), runtime=Runtime(engine="torch", workers=workers)) for workers in ((1, 3), 2))
    assert most_pools([Submission(context=fixed), Submission(context=elastic, trainings_at_once=2)]) == 6 and most_pools([]) == 1


def test_a_client_puts_up_with_two_boards_that_die_and_with_some_damaged_inputs() -> None:
    def followed(*ends: object) -> tuple[list[Any], Any]:
        """What a client gives out, and whether it opened another board, where its attempts to follow end so."""
        left = list(ends)
        driver: Any = BoardClient.__new__(BoardClient)
        driver.reopen = mock.Mock()

        def once(stage: object) -> Iterator[object]:
            end = left.pop(0)
            if isinstance(end, BaseException):
                raise end
            yield end

        driver._follow = once
        return list(driver.follow(STAGE)), driver.reopen

    died, lost = RayActorError(), ArtifactLost(**SAID)
    found, reopened = followed(died, lost, died, "built")
    assert found == ["built"] and reopened.call_count == client.FRESH_BOARDS - 1 == 2
    found, reopened = followed(*[lost] * (client.MOST_LOSSES - 1), "built")
    assert found == ["built"] and not reopened.called
    for error, ends in (
        (RayActorError, [died] * client.FRESH_BOARDS),
        (ArtifactLost, [lost] * client.MOST_LOSSES),
        (DataError, [DataError(**SAID)]),
    ):
        with pytest.raises(error):
            followed(*ends, "built")


def test_a_client_that_opens_another_board_parts_from_the_one_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a board that lives, and only did not answer in time, waits for a client that nobody is."""
    reported = mock.Mock()
    opened = mock.Mock(**{"return_value.remote": mock.Mock(side_effect=(reported.first, reported.second))})
    monkeypatch.setattr(client, "ray", SimpleNamespace(remote=lambda _: SimpleNamespace(options=opened)))
    driver = BoardClient(_submission(tmp_path), mock.Mock())
    old = driver._client_id
    driver.reopen()
    new = driver._client_id
    assert old != new and old.partition("/")[0] == new.partition("/")[0] == driver.submission.id
    calls = [(name, call) for name, call, _ in reported.mock_calls]
    assert [(name.removesuffix(".remote"), old in call, new in call) for name, call in calls] == [
        ("first.register", True, False), ("first.watch", True, False), ("first.unregister", True, False),
        ("second.register", False, True), ("second.watch", False, True),
    ]  # fmt: skip
    where = {"resources": HEAD, "scheduling_strategy": "DEFAULT", "lifetime": "detached"}  # it is lost with no host and with no trial
    assert all(call.kwargs.items() >= where.items() for call in opened.call_args_list)
