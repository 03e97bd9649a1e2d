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
from sentdist.execution.board.watchdog import GroupLostError, Speeds
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
from tests.support.virtual_time import run_in_virtual_time

SECONDS = {"quick": 100.0, "slow": 1000.0}  # that a stage takes
GROUP = Demand(way="group", workers=2, num_cpus=1.0, num_gpus=0.0)
TASK = Demand(way="task", workers=1, num_cpus=1.0, num_gpus=0.0)
GPU = Demand(way="task", workers=1, num_cpus=1.0, num_gpus=1.0)


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
    """A board's groups. A group is a coroutine; `act` gives the answer to each order, or raises what ends the group. devices: of each."""

    act: Callable[[Any], Any]
    at_once: int = 1
    is_wanted: bool = False
    linger_s: float = 0.05
    devices: dict[str, str] = field(default_factory=dict)
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
        number = 0
        while (order := await self.groups.next_order(name, number, is_first=True, device=self.devices.get(name, ""))) is not None:
            number = order.number
            assert isinstance(order.stage, RowsCorpus)
            self.begun.append((name, order.stage.source))
            found = self.act(order.stage.source) if name not in self.devices else asyncio.sleep(SECONDS[self.devices[name]], "built")
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
        assert toys.left == ["workers-1"] and not toys.aborted
        assert await toys.build(4) == "toy/4"
        assert toys.begun[-1][0] == "workers-2"
        several = Toys(lambda source: asyncio.sleep(0.05, source), at_once=2)
        await asyncio.gather(*(several.build(number) for number in range(6)))
        assert {name for name, _ in several.begun} == {"workers-1", "workers-2"}, "as many as the submission may have"

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
        await toys.build(3)
        assert await toys.build(4, replace(GROUP, workers=4)) == "toy/4", "one of another shape makes room, too"
        assert toys.left[2:] == ["workers-3"] and toys.begun[-1][0] == "workers-4"

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
            assert await toys.groups.next_order(name, 0, is_first=True, device="") is not None

        await toys.groups.make_room()
        toys._live = leaves  # type: ignore[method-assign]
        with pytest.raises(GroupLostError):  # it leaves with work in its hands
            await toys.build(4)

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


def test_a_kind_that_never_ended_on_a_device_takes_what_its_speed_makes_of_it() -> None:
    speeds = Speeds()
    assert speeds.expected_s("train", "quick") is None
    for seconds in (10.0, 12.0, 500.0):
        speeds.note("train", "quick", seconds)
    assert speeds.expected_s("train", "quick") == 12.0
    assert speeds.expected_s("train", "slow") is None, "nothing is known of it"
    speeds.note("bank", "quick", 2.0)
    speeds.note("bank", "slow", 8.0)
    assert speeds.expected_s("train", "slow") == 48.0


def test_what_has_the_longest_way_to_a_score_comes_first_and_quick_devices_are_waited_for() -> None:
    async def scene() -> None:
        toys = Toys(_artifact, linger_s=60.0)
        await asyncio.gather(*(toys.build(number, distance=distance) for number, distance in enumerate([0, 1, 0, 3, 1])))
        assert [source for _, source in toys.begun] == [f"toy/{number}" for number in (0, 3, 1, 4, 2)]  # the first found nobody before it
        mixed = Toys(_artifact, at_once=2, linger_s=2000.0, devices={"workers-1": "quick", "workers-2": "slow"})
        await asyncio.gather(*(mixed.build(number) for number in (0, 1)))
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(*(mixed.build(number) for number in range(2, 6)))
        assert asyncio.get_running_loop().time() - began_s < 500.0 and {name for name, _ in mixed.begun[2:]} == {"workers-1"}
        await asyncio.gather(*(mixed.build(number) for number in range(20)))
        assert 1 <= [name for name, _ in mixed.begun[6:]].count("workers-2") <= 2, "the quick one has too much to do"
        await mixed.groups.close()
        await toys.groups.close()

    run_in_virtual_time(scene())
