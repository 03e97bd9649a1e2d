"""The board without a cluster: whom it waits for, what it asks the store, how many it drives at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ray.exceptions import ActorUnavailableError, RayError

from sentdist.errors import ArtifactLost, DataError, SentdistError
from sentdist.execution.board import actor, client
from sentdist.execution.board import events as event_log
from sentdist.execution.board.actor import BoardActor
from sentdist.execution.board.client import BoardClient
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.submissions import ResizableSemaphore, Submission
from sentdist.execution.demand import stage_demand
from sentdist.objectives.entropy import Entropy
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.specs import EncoderSpec, Training
from sentdist.plan.stage import Stage, topological
from sentdist.plan.stages import Bank, Train
from sentdist.stages.context import Context
from sentdist.store.store import Artifact, ArtifactStore
from tests.support.planning import plan_of, small_recipe

CORPUS = RowsCorpus(source="toy", source_revision="1")
ENOUGH_S = 5.0


class FakeRay:
    """What the board and its clients ask of Ray: a reference is a future, a call of an actor a task of this loop."""

    def __init__(self) -> None:
        self.driven: list[tuple[Stage, asyncio.Future[Artifact]]] = []
        self.may_have: list[object] = []
        self.current_actor = SimpleNamespace(drive=SimpleNamespace(remote=self._drive))

    def _drive(self, stage: Stage, submission: Submission, *inputs: object) -> asyncio.Future[Artifact]:
        self.driven.append((stage, asyncio.get_running_loop().create_future()))
        return self.driven[-1][1]

    def read_cluster(self, may_have: object) -> None:
        self.may_have.append(may_have)
        raise RayError("the head does not answer")


@pytest.fixture
def fake_ray() -> Iterator[FakeRay]:
    fake = FakeRay()
    with (
        mock.patch("ray.get_runtime_context", return_value=fake),
        mock.patch("ray.put", side_effect=lambda value: value),
        mock.patch("ray.kill"),
        mock.patch("ray.cancel"),
        mock.patch.object(actor, "note_stopped"),
        mock.patch.object(actor, "read_cluster", fake.read_cluster),
    ):
        yield fake


def _submission(store: ArtifactStore, *, workers: int = 1, **fields: Any) -> Submission:
    return Submission(context=Context(store=store, runtime=Runtime(engine="torch", workers=workers)), **fields)


def _finish(store: ArtifactStore, stage: Stage) -> Artifact:
    with store.staged() as folder:
        return store.commit(stage, folder, seconds=1.0, runtime={}, environment={}, results={})


def _within(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work, 4 * ENOUGH_S)

    asyncio.run(limited())


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(ENOUGH_S):
        while not is_so():
            await asyncio.sleep(0.01)


class GatedStore(ArtifactStore):
    """Has read what it will answer, and answers when the gate is open."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate, self.has_read = threading.Event(), threading.Event()

    def at(self, place: str) -> Artifact | None:
        found = super().at(place)
        self.has_read.set()
        assert self.gate.wait(ENOUGH_S), "the board waits for the store, and nobody opens it"
        return found


def test_a_board_answers_others_while_a_store_is_slow(fake_ray: FakeRay, tmp_path: Path) -> None:
    store = GatedStore(tmp_path)
    finished = _finish(ArtifactStore(tmp_path), CORPUS)

    async def scene() -> None:
        board, submission = BoardActor(mock.Mock(), 1.0), _submission(store, sweep="one")
        asked = asyncio.ensure_future(board.request(CORPUS, submission))
        await _until(store.has_read.is_set)
        assert await board.sweeps() == {"one": 0}
        store.gate.set()
        assert await asked == [finished]

    _within(scene())


def test_what_another_submission_finishes_while_the_store_is_asked_is_not_begun_again(fake_ray: FakeRay, tmp_path: Path) -> None:
    slow, store = GatedStore(tmp_path), ArtifactStore(tmp_path)

    async def scene() -> None:
        board = BoardActor(mock.Mock(), 1.0)
        asked = asyncio.ensure_future(board.request(CORPUS, _submission(slow)))
        await _until(slow.has_read.is_set)
        (ref,) = await board.request(CORPUS, _submission(store))
        ((stage, begun),) = fake_ray.driven
        begun.set_result(_finish(store, stage))
        await ref
        await _until(lambda: not board._work)
        slow.gate.set()
        assert await asked == [store.get(CORPUS)] and len(fake_ray.driven) == 1

    _within(scene())


@pytest.mark.parametrize(("kind", "begun"), [(DataError, [1, 2]), (ArtifactLost, [2, 2])])
def test_what_failed_is_begun_again_for_others_and_for_those_whose_input_was_lost(
    kind: type[SentdistError], begun: list[int], fake_ray: FakeRay, tmp_path: Path
) -> None:
    async def scene() -> None:
        board, mine, others = BoardActor(mock.Mock(), 1.0), *(_submission(ArtifactStore(tmp_path)) for _ in range(2))
        await board.request(CORPUS, mine)
        fake_ray.driven[0][1].set_exception(kind(where="here", found="this", expected="that", remedy="None."))
        await _until(lambda: not board._work)
        numbers = []
        for submission in (mine, others):
            await board.request(CORPUS, submission)
            numbers.append(len(fake_ray.driven))
        assert numbers == begun

    _within(scene())


def test_what_the_most_waits_for_is_known_by_its_distance(fake_ray: FakeRay, tmp_path: Path) -> None:
    stages = topological(plan_of(small_recipe()).trials[-1].scores.inputs)
    ways = {stage.key: 0 for stage in stages}
    for stage in reversed(stages):  # users before inputs
        for needed in stage.inputs:
            ways[needed.key] = max(ways[needed.key], ways[stage.key] + 1)

    async def scene() -> None:
        board = BoardActor(mock.Mock(), 1.0)
        await board.request(stages[-1], _submission(ArtifactStore(tmp_path)))
        assert {work.stage.key: work.distance for work in board._work} == ways and max(ways.values()) > 2

    _within(scene())


def test_workers_that_stay_know_how_long_the_way_of_a_stage_is(fake_ray: FakeRay, tmp_path: Path) -> None:
    """They take what has the longest way first."""
    stages = topological(plan_of(small_recipe()).trials[-1].scores.inputs)
    trainings = [stage for stage in stages if isinstance(stage, Train)]

    async def scene() -> None:
        board, submission = BoardActor(mock.Mock(), 1.0), _submission(ArtifactStore(tmp_path), workers=2)
        await board.request(stages[-1], submission)
        board._groups.build = mock.AsyncMock()  # type: ignore[method-assign]
        for stage in trainings:
            await board._attempt(stage, submission, stage_demand(stage, submission.context.runtime))
        ways = [call.kwargs["distance"] for call in board._groups.build.call_args_list]
        assert ways == [next(work.distance for work in board._work if work.stage == stage) for stage in trainings]
        assert max(ways) > min(ways)

    _within(scene())


def test_who_was_away_for_long_hears_the_last_events_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "KEPT_EVENTS", 3)

    async def scene() -> None:
        log = event_log.EventLog()
        for number in range(1, 6):
            await log.add(StageEvent(key="k", kind="train", label=str(number), what="started"))
        for since, labels in ((0, ["3", "4", "5"]), (2, ["3", "4", "5"]), (4, ["5"])):
            events, last = await log.after(since, is_over=lambda: False)
            assert ([event.label for event in events], last) == (labels, 5)

    _within(scene())


def test_a_submission_that_leaves_while_the_store_is_asked_begins_nothing(fake_ray: FakeRay, tmp_path: Path) -> None:
    store = GatedStore(tmp_path)

    async def scene() -> None:
        board, submission = BoardActor(mock.Mock(), 1.0), _submission(store)
        asked = asyncio.ensure_future(board.request(CORPUS, submission))
        await _until(store.has_read.is_set)
        await board.leave(submission.id)
        store.gate.set()
        with pytest.raises(Exception, match="stopped"):
            await asked
        assert not fake_ray.driven

    _within(scene())


def test_a_sweep_that_was_stopped_is_no_more_among_those_that_are_built(fake_ray: FakeRay, tmp_path: Path) -> None:
    async def scene() -> None:
        board = BoardActor(mock.Mock(), 1.0)
        for sweep in ("mine", "other"):
            await board.request(CORPUS, _submission(ArtifactStore(tmp_path), sweep=sweep))
        assert await board.sweeps() == {"mine": 1, "other": 1} and await board.stop("mine") == 0
        assert await board.sweeps() == {"other": 1}

    _within(scene())


def test_a_driver_that_finds_its_board_again_is_not_cleared_up(fake_ray: FakeRay, tmp_path: Path) -> None:
    """The answer to its first registration was lost with a connection; the second one counts."""

    async def scene() -> None:
        board = BoardActor(mock.Mock(), 0.05)
        answers: list[asyncio.Future[Any]] = []

        def called(method: str) -> Any:
            def remote(*args: Any) -> Any:
                task = asyncio.ensure_future(getattr(board, method)(*args))
                if method != "register":
                    return task
                answers.append(asyncio.get_running_loop().create_future())
                return answers[-1]

            return SimpleNamespace(remote=remote)

        handle = SimpleNamespace(**{name: called(name) for name in ("register", "watch", "unregister")})
        options = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: handle))
        with mock.patch.object(client, "ray", SimpleNamespace(remote=lambda _: options)):
            driver = BoardClient(_submission(ArtifactStore(tmp_path), sweep="mine"), mock.Mock())
            await asyncio.sleep(0.01)
            driver.reopen()
        await asyncio.sleep(0.01)
        answers[0].set_exception(ActorUnavailableError("away for a moment", b"0" * 16))
        await asyncio.sleep(0.3)
        assert await board.sweeps() == {"mine": 0}
        answers[1].set_exception(ActorUnavailableError("gone", b"0" * 16))
        await asyncio.sleep(0.3)
        assert await board.sweeps() == {}

    _within(scene())


@pytest.mark.parametrize(("later", "noted"), [("mine", 0), ("other", 1)])
def test_a_sweep_whose_driver_died_is_noted_as_stopped_unless_it_was_submitted_again(
    later: str, noted: int, fake_ray: FakeRay, tmp_path: Path
) -> None:
    async def scene() -> None:
        board, note = BoardActor(mock.Mock(), 1.0), mock.AsyncMock()
        dead, other = (_submission(ArtifactStore(tmp_path), sweep=sweep) for sweep in ("mine", later))
        await board.request(CORPUS, other)
        with mock.patch.object(actor, "note_stopped", SimpleNamespace(remote=note)):
            await board._clear_up(dead)
        assert note.await_count == noted

    _within(scene())


def test_a_later_submission_on_a_larger_cluster_may_drive_more_pools(fake_ray: FakeRay, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    trained = {
        "encoder": EncoderSpec(checkpoint="toy", revision="1"),
        "corpus": CORPUS,
        "training": Training(),
        "objective": Entropy(phi=0.01),
    }
    banks = [Bank(encoder=Train.model_validate(trained | {"seed": seed}), corpus=CORPUS) for seed in range(5)]
    started: list[str] = []

    def start(body: object, stage: Stage, *_: object) -> asyncio.Future[Artifact]:
        started.append(stage.key)
        return asyncio.get_running_loop().create_future()

    async def scene() -> None:
        board, small = BoardActor(mock.Mock(), 1.0), _submission(store, workers=2)
        drivers = [asyncio.ensure_future(board.register(small, f"{small.id}/1"))]
        await asyncio.sleep(0)
        tasks = [asyncio.ensure_future(board.drive(bank, small)) for bank in banks]
        await _until(lambda: len(started) == 2)
        await asyncio.sleep(0.1)
        assert len(started) == 2, "one training of two workers"
        large = _submission(store, workers=2, trainings_at_once=2)
        drivers.append(asyncio.ensure_future(board.register(large, f"{large.id}/1")))
        await _until(lambda: len(started) == 4)
        for task in [*tasks, *drivers]:
            task.cancel()
        await asyncio.gather(*tasks, *drivers, return_exceptions=True)

    with (
        mock.patch.object(actor, "start", start),
        mock.patch.object(actor, "abort", mock.AsyncMock()),
        mock.patch.object(actor, "has_room", lambda demand: True),
    ):
        _within(scene())


def test_what_an_autoscaler_may_add_is_the_answer_of_the_newest_submission(fake_ray: FakeRay, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)

    async def scene() -> None:
        board = BoardActor(mock.Mock(), 1.0, 0.1)
        await board.request(CORPUS, _submission(store, may_have=(4.0, 0.0)))
        await _until(lambda: bool(fake_ray.may_have))
        await board.request(CORPUS, _submission(store, may_have=(64.0, 8.0)))
        await _until(lambda: fake_ray.may_have[-1] == (64.0, 8.0))

    _within(scene())


def test_places_are_given_in_order_and_given_back_by_those_who_are_cancelled() -> None:
    async def scene() -> None:
        number = 1
        places, came = ResizableSemaphore(lambda: number), list[int]()
        leave = asyncio.Event()

        async def visit(who: int) -> None:
            async with places:
                came.append(who)
                await leave.wait()

        tasks = [asyncio.ensure_future(visit(who)) for who in range(4)]
        await _until(lambda: came == [0])
        tasks[1].cancel()
        tasks[0].cancel()
        await _until(lambda: came == [0, 2])
        number = 2
        places.recheck()
        await _until(lambda: came == [0, 2, 3])
        leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    _within(scene())


def test_what_waits_for_an_input_is_ended_before_that_input(fake_ray: FakeRay, tmp_path: Path) -> None:
    """Else what waits would see the input's end as a failure of its own."""
    stages = topological(plan_of(small_recipe()).trials[-1].scores.inputs)
    cancelled: list[object] = []

    async def scene() -> None:
        board, submission = BoardActor(mock.Mock(), 1.0), _submission(ArtifactStore(tmp_path))
        await board.request(stages[-1], submission)
        works = board._release({submission.id})
        assert cancelled == [work.ref for work in works] and not board._work
        place = {work.stage.key: number for number, work in enumerate(works)}
        assert all(place[stage.key] < place[needed.key] for stage in stages for needed in stage.inputs if stage.key in place)

    with mock.patch("ray.cancel", side_effect=lambda ref, recursive: cancelled.append(ref)):
        _within(scene())
