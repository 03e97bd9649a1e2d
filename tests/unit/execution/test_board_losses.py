"""What a board, its clients and its printer do when processes, boards or inputs are lost. Ray is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from sentdist.errors import ArtifactLost, DataError, SentdistError, SweepStopped
from sentdist.execution.board import actor, client
from sentdist.execution.board import actor as stage_task
from sentdist.execution.board import client as printer
from sentdist.execution.board.actor import BoardActor
from sentdist.execution.board.client import BoardClient
from sentdist.execution.board.diagnosis import STANDSTILL_S
from sentdist.execution.board.events import EventLog, StageEvent
from sentdist.execution.board.submissions import ArtifactLookup, EventSink, Submission, Work, most_pools, stopped
from sentdist.execution.board.watchdog import may_be_a_lost_peer
from sentdist.execution.cluster.address import HEAD
from sentdist.execution.demand import Demand
from sentdist.execution.plan_facts import SweepProgress
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe
from tests.support.waiting import wait_for

STAGE = RowsCorpus(source="toy", source_revision="1")
SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}


def _demand(way: Literal["task", "group", "pool"]) -> Demand:
    return Demand(way=way, workers=1, num_cpus=1.0, num_gpus=0.0)


def _submission(root: Path, *, max_failures: int = 1) -> Submission:
    runtime = Runtime(engine="torch", max_failures=max_failures)
    return Submission(context=Context(store=ArtifactStore(root), runtime=runtime), sweep="mine")


@pytest.mark.parametrize(("way", "is_waiting"), [("task", False), ("pool", True)])
def test_a_process_that_has_started_waits_for_room_no_more_and_one_that_drives_others_does(
    way: Literal["task", "pool"], is_waiting: bool
) -> None:
    async def scene() -> None:
        board = BoardActor(mock.Mock(), 1.0)
        board._waiting.add(STAGE.key)
        board._work.add(Work(ref=mock.Mock(), stage=STAGE, demand=_demand(way)))
        await board.post(StageEvent(key=STAGE.key, kind="corpus", label="toy", what="started"))
        assert (STAGE.key in board._waiting) == is_waiting

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("error", "way", "may_be"),
    [
        (RuntimeError("connection closed by peer"), "group", True),
        (RuntimeError("connection closed by peer"), "pool", True),
        (RuntimeError("of its own"), "task", False),
        (DataError(**SAID), "group", False),
    ],
)
def test_only_what_has_peers_can_have_lost_one(error: Exception, way: Literal["task", "group", "pool"], may_be: bool) -> None:
    assert may_be_a_lost_peer(error, _demand(way)) == may_be


def test_a_worker_is_heard_several_times_before_its_silence_is_reported() -> None:
    assert 3 * EventSink(board=None).every_s < STANDSTILL_S


@pytest.mark.parametrize("is_room", [True, False])
def test_a_process_of_its_own_gets_the_room_of_idle_groups_and_beats_as_the_board_listens(is_room: bool, tmp_path: Path) -> None:
    order = mock.Mock(start=mock.AsyncMock(return_value="built"), make_room=mock.AsyncMock())

    async def scene() -> None:
        board = BoardActor(mock.Mock(), 1.0, 90.0)
        board._groups.make_room = order.make_room  # type: ignore[method-assign]
        assert await board._attempt(STAGE, _submission(tmp_path), _demand("task")) == "built"

    with (
        mock.patch.object(actor, "start", order.start),
        mock.patch.object(actor, "has_room", lambda demand: is_room),
        mock.patch.object(actor, "_this_board"),
    ):
        asyncio.run(scene())
    assert [call[0] for call in order.mock_calls] == (["start"] if is_room else ["make_room", "start"])
    assert 3 * order.start.call_args.args[-1].every_s < 90.0


@pytest.fixture
def followed(tmp_path: Path) -> Callable[..., tuple[list[Any], Any]]:
    """What a client gives out of a stage, and whether it opened another board, where its attempts to follow end so."""

    def follow(*ends: object) -> tuple[list[Any], Any]:
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

    return follow


def test_a_client_puts_up_with_two_boards_that_die_and_with_some_damaged_inputs(followed: Callable[..., tuple[list[Any], Any]]) -> None:
    died, lost = RayActorError(), ArtifactLost(**SAID)
    found, reopened = followed(died, lost, died, "built")
    assert found == ["built"] and reopened.call_count == client.FRESH_BOARDS - 1 == 2
    with pytest.raises(RayActorError):
        followed(*[died] * client.FRESH_BOARDS, "built")
    found, reopened = followed(*[lost] * (client.MOST_LOSSES - 1), "built")
    assert found == ["built"] and not reopened.called
    with pytest.raises(ArtifactLost):
        followed(*[lost] * client.MOST_LOSSES, "built")
    with pytest.raises(DataError):
        followed(DataError(**SAID), "built")


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


@pytest.mark.parametrize(("way", "by_force"), [("task", True), ("pool", True), ("group", False)])
@pytest.mark.parametrize("ends", [True, False])
def test_a_group_is_interrupted_first_and_ended_by_force_where_that_does_not_help(
    way: Literal["task", "group", "pool"], by_force: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Ray Train's controller gives back what its workers have reserved; what waits in a library ends by force alone."""
    forces: list[bool] = []

    async def waited(tasks: object, timeout: float) -> tuple[list[int], list[int]]:
        return ([1], []) if ends else ([], [1])

    async def scene() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(stage_task.asyncio, "wait", waited)
        monkeypatch.setattr(stage_task.asyncio, "wrap_future", lambda _: future)
        await stage_task.abort(mock.Mock(), _demand(way))

    monkeypatch.setattr(stage_task.ray, "cancel", lambda task, force: forces.append(force))
    asyncio.run(scene())
    assert forces == [by_force] + [True] * (not ends)


def test_ray_itself_never_tries_a_stage_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Losses are the board's to count, and it tells them."""
    asked: list[dict[str, Any]] = []
    options = SimpleNamespace(options=lambda **named: asked.append(named) or SimpleNamespace(remote=lambda *_: "ref"))
    monkeypatch.setattr(stage_task, "_build", options)
    monkeypatch.setattr(stage_task, "_stay", options)
    task, sink = Demand(way="task", workers=1, num_cpus=2.0, num_gpus=1.0), EventSink(board=None)
    stage_task.start(mock.Mock(), STAGE, _submission(tmp_path), task, sink)
    stage_task.start_group(stage_task.GroupMember(name="mine", demand=task, body=mock.Mock(), sink=sink))
    assert [(one["max_retries"], one["num_cpus"], one["num_gpus"]) for one in asked] == [(0, 2.0, 1.0)] * 2


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


def test_where_nothing_happens_the_store_is_asked_once_at_a_time_and_again_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A store that does not answer tells so itself; a board that waits cannot."""
    asked, answer = list[object](), [False]

    def names(store: object) -> list[str]:
        asked.append(store)
        wait_for(lambda: answer[0], what="the store's answer")
        return []

    monkeypatch.setattr(printer, "sweep_names", names)
    monkeypatch.setattr(printer, "LOOK_UP_S", 0.01)
    monkeypatch.setattr(printer, "ray", SimpleNamespace(wait=lambda refs, timeout: ([], refs)))
    progress, shown = SweepProgress({}), list[object]()
    monkeypatch.setattr(progress, "silence_line", lambda: "nothing for long")
    board: Any = SimpleNamespace(events=lambda since: 0, submission=_submission(tmp_path), reopen=mock.Mock())
    lines: list[str] = []
    with printer.printed_events(board, progress, lines.append, show=shown.append):
        wait_for(lambda: len(lines) > 3, what="lines")
        assert len(asked) == 1, "while it has not answered"
        answer[0] = True
        wait_for(lambda: len(asked) > 1, what="another question")
    assert asked[0] is board.submission.context.store and shown


def test_a_client_that_opens_another_board_parts_from_the_one_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a board that lives, and only did not answer in time, waits for a client that nobody is."""
    reported: list[tuple[str, str]] = []

    def handle(name: str) -> Any:
        called = {
            "register": lambda submission, client: reported.append((f"{name} register", client)),
            "watch": lambda client, answer: reported.append((f"{name} watch", client)),
            "unregister": lambda client: reported.append((f"{name} unregister", client)),
        }
        return SimpleNamespace(**{method: SimpleNamespace(remote=call) for method, call in called.items()})

    boards = iter((handle("first"), handle("second")))
    opened = mock.Mock(**{"return_value.remote": lambda *_: next(boards)})
    options = SimpleNamespace(options=opened)
    monkeypatch.setattr(client, "ray", SimpleNamespace(remote=lambda _: options))
    driver = BoardClient(_submission(tmp_path), mock.Mock())
    old = driver._client_id
    driver.reopen()
    assert old != driver._client_id and old.partition("/")[0] == driver._client_id.partition("/")[0] == driver.submission.id
    assert reported == [
        ("first register", old), ("first watch", old), ("first unregister", old),
        ("second register", driver._client_id), ("second watch", driver._client_id),
    ]  # fmt: skip
    where = {"resources": HEAD, "scheduling_strategy": "DEFAULT", "lifetime": "detached"}  # it is lost with no host and with no trial
    assert all(call.kwargs.items() >= where.items() for call in opened.call_args_list)


def test_a_board_whose_last_submission_leaves_while_it_is_stopped_answers_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed: list[object] = []
    monkeypatch.setattr(actor.ray, "kill", killed.append)
    monkeypatch.setattr(actor, "_this_board", lambda: "the board")
    monkeypatch.setattr(actor, "ANSWER_S", 0.05)
    over = asyncio.Event()

    async def ended(works: object) -> None:
        await over.wait()

    async def scene() -> None:
        board, mine = BoardActor(mock.Mock(), 1.0), _submission(tmp_path)
        board._note_submission(mine)
        stopping = asyncio.ensure_future(board.stop("mine"))
        await asyncio.sleep(0)
        leaving = asyncio.ensure_future(board.leave(mine.id))
        await asyncio.sleep(0.01)
        over.set()
        await leaving
        assert await stopping == 0 and not killed, "the caller of `stop` has no answer yet"
        await asyncio.sleep(0.2)
        assert killed == ["the board"]

    monkeypatch.setattr(actor, "_ended", ended)
    asyncio.run(scene())


def test_an_elastic_training_may_have_a_pool_driven_for_each_of_its_most_workers(tmp_path: Path) -> None:
    elastic, fixed = (Context(store=ArtifactStore(tmp_path), runtime=Runtime(engine="torch", workers=workers)) for workers in ((1, 3), 2))
    assert most_pools([Submission(context=elastic, trainings_at_once=2)]) == 6
    assert most_pools([Submission(context=fixed), Submission(context=elastic, trainings_at_once=2)]) == 6 and most_pools([]) == 1


def test_who_listens_to_a_sweep_that_is_stopped_is_woken_without_news() -> None:
    async def scene() -> None:
        log, is_over = EventLog(), [False]
        listening = asyncio.ensure_future(log.after(None, is_over=lambda: is_over[0]))
        await asyncio.sleep(0.01)
        await log.wake()
        await asyncio.sleep(0.01)
        assert not listening.done(), "woken, and nothing has happened"
        is_over[0] = True
        await log.wake()
        assert await asyncio.wait_for(listening, 5.0) == ([], 0)

    asyncio.run(scene())


def test_nothing_is_asked_of_the_inputs_of_what_is_there(tmp_path: Path) -> None:
    """A store may be far away, and a sweep that goes on has thousands of stages."""
    train = next(stage for stage in plan_of(small_recipe()).stages if stage.inputs)
    store = ArtifactStore(tmp_path)
    with store.staged() as folder:
        store.commit(train, folder, seconds=1.0, runtime={}, environment={}, results={})

    async def scene() -> None:
        for stage, others in ((train, set[str]()), (STAGE, set[str]())):
            lookup = ArtifactLookup(store)
            asked = lookup.unknown(stage, is_settled=lambda one: False)
            assert set(asked) == {stage.key}
            await lookup.ask(asked)
            assert set(lookup.unknown(stage, is_settled=lambda one: False)) == others
        lookup = ArtifactLookup(ArtifactStore(tmp_path / "empty"))
        await lookup.ask(lookup.unknown(train, is_settled=lambda one: False))
        assert set(lookup.unknown(train, is_settled=lambda one: False)) == {one.key for one in train.inputs}

    asyncio.run(scene())


def test_a_board_is_that_of_its_store_and_of_the_code_that_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a job would have its work done by the older code of another."""
    names = set()
    for digest in ("a" * 40, "b" * 40):
        monkeypatch.setattr(client, "code_digest", lambda digest=digest: digest)
        names |= {client.board_name(ArtifactStore(tmp_path / place)) for place in ("one", "two", "one")}
    assert len(names) == 4 and all(name.startswith(client.BOARDS) for name in names)
