"""Workers that stay: which stage they are given next, and when they go. The groups are toys that build at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import DataError
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage
from sentdist.run import workers as worker_groups
from sentdist.run.losses import GroupLostError
from sentdist.run.resources import Demand
from sentdist.run.submissions import Submission
from sentdist.run.workers import StartedGroup, WorkerGroups
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore

GROUP = Demand(way="group", workers=2, num_cpus=1.0, num_gpus=0.0)


def _stage(number: int) -> Stage:
    return RowsCorpus(source=f"toy/{number}", source_revision="1")


def _play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 20))


def _artifact(source: str) -> Any:
    return source  # `WorkerGroups` hands on whatever is no error


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_groups, "GRACE_S", 0.01)


@dataclass
class Toys:
    """A board's groups. A group is a coroutine; `act` gives the answer to each order, or raises what ends the group."""

    act: Callable[[Any], Any]
    at_once: int = 1
    begun: list[tuple[str, str]] = field(default_factory=list)  # name of the group, source of the stage
    left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.groups = WorkerGroups(self._start, linger_s=0.05)
        context = Context(store=ArtifactStore(Path("/nowhere")), data_root=Path("/nowhere"), runtime=Runtime())
        self.submission = Submission(context=context, trainings_at_once=self.at_once)

    def build(self, number: int, demand: Demand = GROUP) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.groups.build(_stage(number), self.submission, demand, distance=0))

    def _start(self, name: str, demand: Demand) -> StartedGroup:
        task = asyncio.ensure_future(self._live(name))

        async def abort() -> None:
            task.cancel()

        return StartedGroup(ended=task, abort=abort)

    async def _live(self, name: str) -> None:
        number = 0
        while (order := await self.groups.next_order(name, number, is_first=True)) is not None:
            number = order.number
            assert isinstance(order.stage, RowsCorpus)
            self.begun.append((name, order.stage.source))
            found = self.act(order.stage.source)
            answer = await found if asyncio.iscoroutine(found) else found
            self.groups.finish(name, number, answer)
        self.left.append(name)


def test_one_group_builds_stage_after_stage_and_leaves_when_nothing_comes() -> None:
    async def scene() -> None:
        toys = Toys(_artifact)
        assert await asyncio.gather(*(toys.build(number) for number in range(3))) == ["toy/0", "toy/1", "toy/2"]
        toys.groups.finish("workers-1", 1, _artifact("an answer to an earlier order"))
        assert await toys.build(3) == "toy/3"
        assert [name for name, _ in toys.begun] == ["workers-1"] * 4
        await asyncio.sleep(0.3)
        assert toys.left == ["workers-1"]
        assert await toys.build(4) == "toy/4"
        assert toys.begun[-1][0] == "workers-2"
        several = Toys(lambda source: asyncio.sleep(0.05, source), at_once=2)
        await asyncio.gather(*(several.build(number) for number in range(6)))
        assert {name for name, _ in several.begun} == {"workers-1", "workers-2"}, "as many as the submission may have"

    _play(scene())


def test_the_end_of_a_group_is_the_error_of_what_it_built_and_of_nothing_else() -> None:
    async def scene() -> None:
        error = DataError(where="toy", found="nothing", expected="something", remedy="Fix it.")

        def act(source: str) -> Any:
            if source == "toy/0":
                raise GroupLostError(RuntimeError("connection closed by peer"))
            return error if source == "toy/2" else source

        toys = Toys(act)
        first, second = toys.build(0), toys.build(1)
        with pytest.raises(GroupLostError):
            await first
        assert await second == "toy/1"
        with pytest.raises(DataError, match="nothing"):
            await toys.build(2)
        assert await toys.build(3) == "toy/3"
        assert [name for name, _ in toys.begun] == ["workers-1", "workers-2", "workers-2", "workers-3"], (
            "after an error they are not used again"
        )

        async def leaves(name: str) -> None:
            assert await toys.groups.next_order(name, 0, is_first=True) is not None

        await toys.groups.close()
        toys._live = leaves  # type: ignore[method-assign]
        with pytest.raises(GroupLostError):  # it leaves with work in its hands
            await toys.build(4)

    _play(scene())


def test_a_stage_is_built_by_the_first_group_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the one that was started for it, which may wait for room; a group that cannot be started is reported once."""
    one = Demand(way="task", workers=1, num_cpus=1.0, num_gpus=0.0)

    async def scene() -> None:
        room = asyncio.Semaphore(1)
        ended: list[str] = []
        toys = Toys(lambda source: asyncio.sleep(0.01, source))
        live = toys._live

        async def in_room(name: str) -> None:
            try:
                async with room:
                    await live(name)
            finally:
                ended.append(name)

        toys._live = in_room  # type: ignore[method-assign]
        assert await asyncio.gather(*(toys.build(number, one) for number in range(20))) == [f"toy/{number}" for number in range(20)]
        assert {name for name, _ in toys.begun} == {"worker-1"}
        await asyncio.sleep(0.3)
        assert len(ended) <= worker_groups.MAX_COMING + 1 and not toys.groups._groups, "those that never began are gone, too"

        async def fails(name: str) -> None:
            raise RuntimeError("it cannot be started")

        toys._live = fails  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="cannot be started"):
            await toys.build(20, one)

    _play(scene())


def test_the_longest_path_is_built_first() -> None:
    async def scene() -> None:
        toys = Toys(_artifact)
        asked = [toys.groups.build(_stage(number), toys.submission, GROUP, distance=number) for number in range(4)]
        await asyncio.gather(*asked)
        assert [source for _, source in toys.begun] == ["toy/3", "toy/2", "toy/1", "toy/0"]

    _play(scene())


def test_the_other_workers_see_an_order_when_the_first_has_begun_it() -> None:
    async def scene() -> None:
        gate = asyncio.Event()

        async def act(source: str) -> str:
            await gate.wait()
            return source

        toys = Toys(act)
        first = toys.build(0)
        await asyncio.sleep(0.02)
        other = asyncio.ensure_future(toys.groups.next_order("workers-1", 0, is_first=False))
        await asyncio.sleep(0.02)
        assert not other.done()
        toys.groups.begin("workers-1", 1)
        order = await other
        assert order is not None and order.number == 1
        gate.set()
        await first
        await toys.groups.close()
        assert await toys.groups.next_order("workers-1", 1, is_first=False) is None

    _play(scene())
