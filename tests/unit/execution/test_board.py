"""The board when processes or inputs are lost and sweeps are stopped. Ray is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import pytest
from ray.exceptions import RayError, WorkerCrashedError

from sentdist.errors import ArtifactLost, DataError, ResourceError, SentdistError
from sentdist.execution.board import actor, client
from sentdist.execution.board.actor import BoardActor
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.submissions import Submission
from sentdist.execution.board.watchdog import Attempts, GroupLostError, end_of, may_be_a_lost_peer
from sentdist.execution.demand import Demand
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.stage import Stage
from sentdist.stages.context import Context
from sentdist.store.store import Artifact, ArtifactStore

STAGE = RowsCorpus(source="toy", source_revision="1")
SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}
ENOUGH_S = 5.0
Driven = Callable[..., tuple[object, list[StageEvent], list[tuple[Any, ...]]]]


def _demand(way: Literal["task", "group", "pool"]) -> Demand:
    return Demand(way=way, workers=1, num_cpus=1.0, num_gpus=0.0)


def _submission(root: Path, *, max_failures: int = 1, sweep: str = "mine") -> Submission:
    runtime = Runtime(engine="torch", max_failures=max_failures)
    return Submission(context=Context(store=ArtifactStore(root), runtime=runtime), sweep=sweep)


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


def _within(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work, 4 * ENOUGH_S)

    asyncio.run(limited())


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


def test_only_what_has_peers_can_have_lost_one() -> None:
    closed = RuntimeError("connection closed by peer")
    assert may_be_a_lost_peer(closed, _demand("group")) and may_be_a_lost_peer(closed, _demand("pool"))
    assert not may_be_a_lost_peer(closed, _demand("task")) and not may_be_a_lost_peer(DataError(**SAID), _demand("group"))


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


def test_a_lost_input_that_took_a_group_is_no_failure_and_a_mistake_is_final(driven: Driven) -> None:
    mistake, lost = DataError(**SAID), ArtifactLost(**SAID)
    found, events, noted = driven(GroupLostError(mistake), max_failures=5)
    assert found is mistake and [event.what for event in events] == ["failed"] and len(noted) == 1
    found, events, noted = driven(GroupLostError(lost), max_failures=5)
    assert found is lost and [event.what for event in events] == ["lost"] and not noted, "who asked for it asks again"
    assert end_of(STAGE, mistake).what == "failed"


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(ENOUGH_S):
        while not is_so():
            await asyncio.sleep(0.01)


def test_what_failed_is_begun_again_for_others_and_for_those_whose_input_was_lost(fake_ray: FakeRay, tmp_path: Path) -> None:
    async def scene(kind: type[SentdistError], begun: list[int]) -> None:
        fake_ray.driven.clear()
        board, mine, others = BoardActor(mock.Mock(), 1.0), *(_submission(tmp_path, sweep=sweep) for sweep in ("one", "two"))
        await board.request(STAGE, mine)
        fake_ray.driven[0][1].set_exception(kind(**SAID))
        await _until(lambda: not board._work)
        numbers = []
        for submission in (mine, others):
            await board.request(STAGE, submission)
            numbers.append(len(fake_ray.driven))
        assert numbers == begun

    _within(scene(DataError, [1, 2]))
    _within(scene(ArtifactLost, [2, 2]))


def test_a_sweep_that_was_stopped_is_no_more_among_those_that_are_built(fake_ray: FakeRay, tmp_path: Path) -> None:
    """Nor is one whose driver died: its tracker is told, unless it was submitted again."""

    async def scene() -> None:
        board, note = BoardActor(mock.Mock(), 1.0), mock.AsyncMock()
        for sweep in ("mine", "other"):
            await board.request(STAGE, _submission(tmp_path, sweep=sweep))
        assert await board.sweeps() == {"mine": 1, "other": 1} and await board.stop("mine") == 0
        assert await board.sweeps() == {"other": 1}
        with mock.patch.object(actor, "note_stopped", SimpleNamespace(remote=note)):
            for sweep, num_noted in (("other", 0), ("third", 1)):
                await board._clear_up(_submission(tmp_path, sweep=sweep))
                assert note.await_count == num_noted

    _within(scene())
