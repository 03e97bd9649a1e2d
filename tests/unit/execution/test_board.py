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
from ray.exceptions import RayError

from sentdist.errors import ArtifactLost, DataError, SentdistError
from sentdist.execution.board import actor
from sentdist.execution.board.actor import BoardActor
from sentdist.execution.board.submissions import ResizableSemaphore, Submission
from sentdist.execution.demand import stage_demand
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.stage import Stage, topological
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.store.store import Artifact, ArtifactStore
from tests.support.planning import plan_of, small_recipe

CORPUS = RowsCorpus(source="toy", source_revision="1")
ENOUGH_S = 5.0


class FakeRay:
    """What the board and its clients ask of Ray: a reference is a future, a call of an actor a task of this loop."""

    def __init__(self) -> None:
        self.driven: list[tuple[Stage, asyncio.Future[Artifact]]] = []
        self.current_actor = SimpleNamespace(drive=SimpleNamespace(remote=self._drive))

    def _drive(self, stage: Stage, submission: Submission, *inputs: object) -> asyncio.Future[Artifact]:
        self.driven.append((stage, asyncio.get_running_loop().create_future()))
        return self.driven[-1][1]


@pytest.fixture
def fake_ray() -> Iterator[FakeRay]:
    fake = FakeRay()
    with (
        mock.patch("ray.get_runtime_context", return_value=fake),
        mock.patch("ray.put", side_effect=lambda value: value),
        mock.patch("ray.kill"),
        mock.patch("ray.cancel"),
        mock.patch.object(actor, "note_stopped"),
        mock.patch.object(actor, "read_cluster", side_effect=RayError("the head does not answer")),
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
    store, leaves = GatedStore(tmp_path), _submission(GatedStore(tmp_path / "other"))
    finished = _finish(ArtifactStore(tmp_path), CORPUS)

    async def scene() -> None:
        board, submission = BoardActor(mock.Mock(), 1.0), _submission(store, sweep="one")
        asked, begins_nothing = (asyncio.ensure_future(board.request(CORPUS, one)) for one in (submission, leaves))
        await _until(store.has_read.is_set)
        await _until(leaves.context.store.has_read.is_set)  # type: ignore[attr-defined]
        await board.leave(leaves.id)
        assert await board.sweeps() == {"one": 0}
        for one in (store, leaves.context.store):
            one.gate.set()  # type: ignore[attr-defined]
        assert await asked == [finished]
        with pytest.raises(Exception, match="stopped"):
            await begins_nothing
        assert not fake_ray.driven

    _within(scene())


def test_what_failed_is_begun_again_for_others_and_for_those_whose_input_was_lost(fake_ray: FakeRay, tmp_path: Path) -> None:
    async def scene(kind: type[SentdistError], begun: list[int]) -> None:
        fake_ray.driven.clear()
        board, mine, others = BoardActor(mock.Mock(), 1.0), *(_submission(ArtifactStore(tmp_path)) for _ in range(2))
        await board.request(CORPUS, mine)
        fake_ray.driven[0][1].set_exception(kind(where="here", found="this", expected="that", remedy="None."))
        await _until(lambda: not board._work)
        numbers = []
        for submission in (mine, others):
            await board.request(CORPUS, submission)
            numbers.append(len(fake_ray.driven))
        assert numbers == begun

    _within(scene(DataError, [1, 2]))
    _within(scene(ArtifactLost, [2, 2]))


def test_what_the_most_waits_for_is_known_by_its_distance(fake_ray: FakeRay, tmp_path: Path) -> None:
    """Workers that stay are told it: they take what has the longest way first."""
    stages = topological(plan_of(small_recipe()).trials[-1].scores.inputs)
    ways = {stage.key: 0 for stage in stages}
    for stage in reversed(stages):  # users before inputs
        for needed in stage.inputs:
            ways[needed.key] = max(ways[needed.key], ways[stage.key] + 1)

    async def scene() -> None:
        board, submission = BoardActor(mock.Mock(), 1.0), _submission(ArtifactStore(tmp_path), workers=2)
        await board.request(stages[-1], submission)
        assert {work.stage.key: work.distance for work in board._work} == ways and max(ways.values()) > 2
        board._groups.build = mock.AsyncMock()  # type: ignore[method-assign]
        trainings = [stage for stage in stages if isinstance(stage, Train)]
        for stage in trainings:
            await board._attempt(stage, submission, stage_demand(stage, submission.context.runtime))
        assert [call.kwargs["distance"] for call in board._groups.build.call_args_list] == [ways[stage.key] for stage in trainings]

    _within(scene())


def test_a_sweep_that_was_stopped_is_no_more_among_those_that_are_built(fake_ray: FakeRay, tmp_path: Path) -> None:
    """Nor is one whose driver died: its tracker is told, unless it was submitted again."""

    async def scene() -> None:
        board, note = BoardActor(mock.Mock(), 1.0), mock.AsyncMock()
        for sweep in ("mine", "other"):
            await board.request(CORPUS, _submission(ArtifactStore(tmp_path), sweep=sweep))
        assert await board.sweeps() == {"mine": 1, "other": 1} and await board.stop("mine") == 0
        assert await board.sweeps() == {"other": 1}
        with mock.patch.object(actor, "note_stopped", SimpleNamespace(remote=note)):
            for sweep, num_noted in (("other", 0), ("third", 1)):
                await board._clear_up(_submission(ArtifactStore(tmp_path), sweep=sweep))
                assert note.await_count == num_noted

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
