"""Workers that stay: which stage they are given next, and when they go. The groups are toys that build at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import DataError
from sentdist.execution.board import worker_groups
from sentdist.execution.board.submissions import Submission
from sentdist.execution.board.watchdog import GroupLostError
from sentdist.execution.board.worker_groups import NoGroupError, StartedGroup, WorkerGroups
from sentdist.execution.demand import Demand, stage_demand
from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.specs import EncoderSpec, Training
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Scores, Train
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore

GROUP = Demand(way="group", workers=2, num_cpus=1.0, num_gpus=0.0)
TASK = Demand(way="task", workers=1, num_cpus=1.0, num_gpus=0.0)
GPU = Demand(way="task", workers=1, num_cpus=1.0, num_gpus=1.0)


def _stage(number: int) -> Stage:
    return RowsCorpus(source=f"toy/{number}", source_revision="1")


@dataclass
class Toys:
    """A board's groups. A group is a coroutine; `act` gives the answer to each order, or raises what ends the group."""

    act: Callable[[Any], Any]
    at_once: int = 1
    is_wanted: bool = False
    linger_s: float = 0.05
    starts_in_s: float = 0.0
    begun: list[tuple[str, str]] = field(default_factory=list)  # name of the group, source of the stage
    left: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.groups = WorkerGroups(self._start, is_wanted=lambda: self.is_wanted, linger_s=self.linger_s)
        context = Context(store=ArtifactStore(Path("/nowhere")), data_root=Path("/nowhere"), runtime=Runtime())
        self.submission = Submission(context=context, trainings_at_once=self.at_once)

    def build(self, number: int, demand: Demand = GROUP, *, distance: int = 0) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.groups.build(_stage(number), self.submission, demand, distance=distance))

    def _start(self, name: str, demand: Demand) -> StartedGroup:
        task = asyncio.ensure_future(self._live(name))

        async def abort() -> None:
            self.aborted.append(name)
            task.cancel()

        return StartedGroup(ended=task, abort=abort)

    async def _live(self, name: str) -> None:
        await asyncio.sleep(self.starts_in_s)
        number = 0
        while (order := await self.groups.next_order(name, number, is_first=True, device="")) is not None:
            number = order.number
            assert isinstance(order.stage, RowsCorpus)
            self.begun.append((name, order.stage.source))
            found = self.act(order.stage.source)
            answer = await found if asyncio.iscoroutine(found) else found
            self.groups.finish(name, number, answer)
        self.left.append(name)


def _play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 20))


def _artifact(source: str) -> Any:
    return source  # `WorkerGroups` hands on whatever is no error


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_groups, "GRACE_S", 0.01)


def test_one_group_builds_stage_after_stage_and_leaves_when_nothing_comes() -> None:
    async def scene() -> None:
        toys = Toys(_artifact)
        assert await asyncio.gather(*(toys.build(number) for number in range(3))) == ["toy/0", "toy/1", "toy/2"]
        assert await toys.build(3) == "toy/3"
        assert [name for name, _ in toys.begun] == ["workers-1"] * 4
        await asyncio.sleep(0.3)
        assert toys.left == ["workers-1"] and not toys.aborted
        assert await toys.build(4) == "toy/4"
        assert toys.begun[-1][0] == "workers-2"

    _play(scene())


def test_an_answer_to_an_earlier_order_is_none_to_this_one() -> None:
    async def scene() -> None:
        goes_on = asyncio.Event()

        async def act(source: str) -> Any:
            await goes_on.wait()
            return source

        toys = Toys(lambda source: source if source == "toy/0" else act(source))
        assert await toys.build(0) == "toy/0"
        second = toys.build(1)
        while len(toys.begun) < 2:
            await asyncio.sleep(0)
        toys.groups.finish("workers-1", 1, _artifact("toy/0"))
        goes_on.set()
        assert await second == "toy/1"

    _play(scene())


def test_who_waited_for_a_group_to_rest_lets_it_go_only_if_it_built_nothing_since(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_rest(*_: object) -> None: ...

    async def scene() -> None:
        toys = Toys(_artifact, is_wanted=True)
        rest = toys.groups._rest
        monkeypatch.setattr(toys.groups, "_rest", no_rest)
        assert [await toys.build(number) for number in range(2)] == ["toy/0", "toy/1"]
        group = toys.groups._groups["workers-1"]
        await rest(group, 1)
        assert group.is_idle and not toys.left
        await rest(group, 2)
        assert not group.is_idle and toys.left == ["workers-1"]

    _play(scene())


def test_as_many_groups_work_at_once_as_the_submission_may_have() -> None:
    async def scene() -> None:
        toys = Toys(lambda source: asyncio.sleep(0.05, source), at_once=2)
        await asyncio.gather(*(toys.build(number) for number in range(6)))
        assert {name for name, _ in toys.begun} == {"workers-1", "workers-2"}

    _play(scene())


def test_what_has_the_longest_way_to_a_score_comes_first() -> None:
    async def scene() -> None:
        toys = Toys(lambda source: asyncio.sleep(0.02, source))
        await asyncio.gather(*(toys.build(number, distance=distance) for number, distance in enumerate([0, 1, 0, 3, 1])))
        assert [source for _, source in toys.begun] == [f"toy/{number}" for number in (0, 3, 1, 4, 2)]  # the first found nobody before it

    _play(scene())


def test_what_takes_one_process_is_built_by_a_group_that_is_there_and_by_none_that_is_not() -> None:
    async def scene() -> None:
        toys = Toys(_artifact)
        assert not toys.groups.can_build(TASK)
        await toys.build(0)
        assert toys.groups.can_build(TASK, now=True)
        assert not toys.groups.can_build(replace(TASK, num_cpus=2.0)) and not toys.groups.can_build(GPU)
        assert await toys.build(1, TASK) == "toy/1"
        await toys.groups.make_room()
        with pytest.raises(NoGroupError):
            await toys.build(2, TASK)
        assert await toys.build(3, GPU) == "toy/3"  # a process with a GPU stays, so it is started

    _play(scene())


def test_a_training_of_one_worker_is_given_to_no_group_of_several() -> None:
    """They would train it together: a loss of one of them would end it, and a batch of three rows has no share for a fourth."""

    async def scene() -> None:
        encoder, corpus = EncoderSpec(checkpoint="toy", revision="1"), RowsCorpus(source="toy", source_revision="1")
        train = Train(corpus=corpus, encoder=encoder, objective=InfoNCE(), training=Training(batch_size=8), seed=0)
        one = stage_demand(train, Runtime(engine="torch", cpus_per_worker=1.0))
        on_gpu = stage_demand(train, Runtime(engine="torch", cpus_per_worker=1.0, gpus_per_worker=1.0))
        scores = stage_demand(Scores(encoder=encoder, tasks=()), Runtime(engine="torch", cpus_per_worker=1.0))
        toys = Toys(_artifact, linger_s=60.0)
        await toys.build(0)
        assert toys.groups.can_build(scores, now=True) and not toys.groups.can_build(one)
        await toys.build(1, replace(GROUP, num_gpus=1.0))
        assert await toys.build(2, on_gpu) == "toy/2"
        assert [name for name, _ in toys.begun] == ["workers-1", "workers-2", "workers-3"]
        await toys.build(3, replace(GROUP, workers=1))
        assert toys.groups.can_build(one, now=True)

    _play(scene())


def test_an_idle_group_goes_at_once_when_anything_else_waits_for_room() -> None:
    async def scene() -> None:
        toys = Toys(_artifact, linger_s=60.0)
        await toys.build(0)
        toys.is_wanted = True
        await toys.build(1)
        await asyncio.sleep(0.1)
        assert toys.left == ["workers-1"]
        toys.is_wanted = False
        await toys.build(2)
        await toys.groups.make_room()
        assert toys.left == ["workers-1", "workers-2"]

    _play(scene())


def test_an_idle_group_of_another_shape_makes_room() -> None:
    async def scene() -> None:
        toys = Toys(_artifact, linger_s=60.0)
        await toys.build(0)
        assert await toys.build(1, replace(GROUP, workers=4)) == "toy/1"
        assert toys.left == ["workers-1"] and toys.begun[-1][0] == "workers-2"

    _play(scene())


def test_an_error_of_a_stage_reaches_who_asked_and_its_processes_are_not_used_again() -> None:
    async def scene() -> None:
        error = DataError(where="toy", found="nothing", expected="something", remedy="Fix it.")
        toys = Toys(lambda source: error if source == "toy/0" else source)
        with pytest.raises(DataError, match="nothing"):
            await toys.build(0)
        assert await toys.build(1) == "toy/1"
        assert [name for name, _ in toys.begun] == ["workers-1", "workers-2"]

    _play(scene())


def test_the_end_of_a_group_is_the_error_of_what_it_built_and_of_nothing_else() -> None:
    async def scene() -> None:
        def act(source: str) -> str:
            if source == "toy/0":
                raise GroupLostError(RuntimeError("connection closed by peer"))
            return source

        toys = Toys(act)
        first, second = toys.build(0), toys.build(1)
        with pytest.raises(GroupLostError):
            await first
        assert await second == "toy/1"

    _play(scene())


def test_who_is_cancelled_ends_the_group_that_works_for_him_and_leaves_the_line_alone() -> None:
    async def scene() -> None:
        toys = Toys(lambda source: asyncio.sleep(60.0 if source == "toy/0" else 0.0, source))
        first, second, third = (toys.build(number) for number in range(3))
        await asyncio.sleep(0.02)
        third.cancel()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second == "toy/1"
        assert toys.aborted == ["workers-1"] and ("workers-2", "toy/2") not in toys.begun

    _play(scene())


def test_a_group_that_is_still_starting_is_let_come_up_before_it_goes() -> None:
    async def scene() -> None:
        toys = Toys(_artifact, starts_in_s=0.1)
        work = toys.build(0)
        await asyncio.sleep(0.02)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert toys.left == ["workers-1"] and not toys.aborted and not toys.begun

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
        other = asyncio.ensure_future(toys.groups.next_order("workers-1", 0, is_first=False, device=""))
        await asyncio.sleep(0.02)
        assert not other.done()
        toys.groups.begin("workers-1", 1)
        order = await other
        assert order is not None and order.number == 1
        gate.set()
        await first
        await toys.groups.close()
        assert await toys.groups.next_order("workers-1", 1, is_first=False, device="") is None

    _play(scene())


def test_a_group_that_leaves_with_work_in_its_hands_is_lost() -> None:
    """Then the board tries again, as often as the recipe allows."""

    async def scene() -> None:
        toys = Toys(_artifact)

        async def quietly(name: str) -> None:
            assert await toys.groups.next_order(name, 0, is_first=True, device="") is not None

        toys._live = quietly  # type: ignore[method-assign]
        with pytest.raises(GroupLostError):
            await toys.build(0)

    _play(scene())
