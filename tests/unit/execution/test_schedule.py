"""A sweep on a board's groups, in virtual time: what is built first, and where, when devices differ in speed.

The groups are the board's, the plans those of shipped recipes; how long a stage and the start of a worker take is said here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sentdist.execution.board.submissions import Submission
from sentdist.execution.board.watchdog import Speeds
from sentdist.execution.board.worker_groups import StartedGroup, WorkerGroups
from sentdist.execution.demand import Demand
from sentdist.plan.sections import Runtime
from sentdist.plan.stage import Stage
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support.planning import RECIPES, shipped_plan
from tests.support.virtual_time import run_in_virtual_time

GPU = Demand(way="task", workers=1, num_cpus=1.0, num_gpus=1.0)
START_S = 20.0  # of a process: libraries, device
BETWEEN_S = 0.25  # two stages of a process: 0.5 while each looked for garbage among libraries, too
CORPUS_S = 2.0  # on a CPU
SMALL = {"train": 4.0, "bank": 1.0, "scores": 3.0}  # MiniLM, 13,500 rows
LARGE = {"train": 600.0, "bank": 60.0, "scores": 20.0}  # BERT-base, 275,000 rows


@dataclass
class Sweep:
    """A recipe's stages on GPUs of some speeds, 1 for the seconds above. Over when all are built."""

    stages: Sequence[Stage]
    speeds: Sequence[float]
    seconds: Mapping[str, float]
    knows_distance: bool = True
    knows_devices: bool = True
    useful_s: float = 0.0
    ends_s: float = 0.0
    built_on: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.free = sorted(self.speeds, reverse=True)
        self.users: defaultdict[str, list[str]] = defaultdict(list)
        for stage in self.stages:
            for needed in stage.inputs:
                self.users[needed.key].append(stage.key)
        run_in_virtual_time(self._run())

    @property
    def bound_s(self) -> float:
        """No schedule takes less."""
        return sum(self.seconds.get(stage.kind, 0.0) for stage in self.stages) / sum(self.speeds)

    @property
    def packed_s(self) -> float:
        """Seconds until the end of stages that were packed without a gap, on equal devices, behind the corpus and the start of workers."""
        num_stages = sum(stage.kind in self.seconds for stage in self.stages)
        return CORPUS_S + START_S + self.bound_s + BETWEEN_S * num_stages / len(self.speeds)

    @property
    def useful(self) -> float:
        """Share of all GPUs' time in which a stage was built."""
        return self.useful_s / (self.ends_s * len(self.speeds))

    async def _run(self) -> None:
        self.groups = WorkerGroups(self._start, is_wanted=lambda: False)
        context = Context(store=ArtifactStore(Path("/nowhere")), data_root=Path("/nowhere"), runtime=Runtime())
        self.submission = Submission(context=context, trainings_at_once=len(self.speeds))
        works: dict[str, asyncio.Task[Any]] = {}
        for stage in self.stages:
            works[stage.key] = asyncio.ensure_future(self._build(stage, [works[one.key] for one in stage.inputs if one.key in works]))
        await asyncio.gather(*works.values())
        self.ends_s = asyncio.get_running_loop().time()
        await self.groups.close()

    async def _build(self, stage: Stage, inputs: Sequence[asyncio.Task[Any]]) -> None:
        if inputs:
            await asyncio.wait(inputs)
        if stage.kind not in self.seconds:
            await asyncio.sleep(CORPUS_S)
            return
        await self.groups.build(stage, self.submission, GPU, distance=self._distance(stage.key) if self.knows_distance else 0)

    @cache  # noqa: B019 - a sweep lives for a test
    def _distance(self, key: str) -> int:
        return max((self._distance(user) + 1 for user in self.users[key]), default=0)

    def __hash__(self) -> int:
        return id(self)

    def _start(self, name: str, demand: Demand) -> StartedGroup:
        task = asyncio.ensure_future(self._live(name))

        async def abort() -> None:
            task.cancel()

        return StartedGroup(ended=task, abort=abort)

    async def _live(self, name: str) -> None:
        speed = self.free.pop(0)
        await asyncio.sleep(START_S)
        number, device = 0, f"a GPU of speed {speed}" if self.knows_devices else ""
        while (order := await self.groups.next_order(name, number, is_first=True, device=device)) is not None:
            number = order.number
            seconds = self.seconds[order.stage.kind] / speed
            await asyncio.sleep(BETWEEN_S + seconds)
            self.useful_s += seconds
            self.built_on[order.stage.kind].append(speed)
            self.groups.finish(name, number, "built")  # type: ignore[arg-type]  # it is handed on
        self.free = sorted([*self.free, speed], reverse=True)


def _stages(recipe: str) -> Sequence[Stage]:
    return shipped_plan(RECIPES / recipe).stages


def test_most_of_eight_gpus_time_is_work_even_where_a_training_takes_four_seconds() -> None:
    """Of 115 s 22 are those before the first training, 7 pass between stages, and no order of them spares more than 2."""
    sweep = Sweep(_stages("sweeps/rcl_grid.yaml"), [1.0] * 8, SMALL)
    assert sweep.useful > 0.72 and sweep.ends_s < 1.02 * sweep.packed_s
    assert Sweep(_stages("sweeps/rcl_grid.yaml"), [1.0] * 8, LARGE).useful > 0.98


@pytest.mark.parametrize("recipe", ["sweeps/rcl_grid.yaml", "rcl_sts.yaml", "rcl_faq.yaml"])
def test_what_has_the_longest_way_to_a_score_is_built_first(recipe: str) -> None:
    ordered, as_asked = (Sweep(_stages(recipe), [1.0] * 8, LARGE, knows_distance=known) for known in (True, False))
    assert ordered.ends_s <= as_asked.ends_s
    assert recipe != "sweeps/rcl_grid.yaml" or ordered.ends_s < 0.98 * as_asked.ends_s


@pytest.mark.parametrize(
    ("recipe", "speeds", "of_time", "of_bound"),
    [("sweeps/rcl_grid.yaml", [1.0] * 16 + [0.25] * 16, 0.85, 1.2), ("rcl_sts.yaml", [1.0] * 4 + [0.25] * 4, 0.7, 1.25)],
)
def test_slow_devices_hold_nobody_up(recipe: str, speeds: list[float], of_time: float, of_bound: float) -> None:
    """Where the last trainings of a chain begin on the slow half, all wait for them: four times as long as on the quick half."""
    reported, unreported = (Sweep(_stages(recipe), speeds, LARGE, knows_devices=known) for known in (True, False))
    assert reported.ends_s < of_time * unreported.ends_s
    assert reported.ends_s < of_bound * reported.bound_s


def test_a_slow_device_is_taken_where_the_quick_one_has_too_much_to_do() -> None:
    """One quick and one slow GPU, and a hundred trainings: both work to the end."""
    stages = [stage for stage in _stages("sweeps/rcl_grid.yaml") if stage.kind in ("corpus", "train")][:101]
    sweep = Sweep(stages, [1.0, 0.25], LARGE)
    assert 15 < sweep.built_on["train"].count(0.25) < 25 and sweep.ends_s < 1.05 * sweep.bound_s


def test_a_quick_device_that_is_late_is_waited_for_no_longer_than_it_would_spare() -> None:
    async def scene() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        built: list[str] = []

        async def live(name: str) -> None:
            number = 0
            while (order := await groups.next_order(name, number, is_first=True, device=DEVICES[name])) is not None:
                number = order.number
                hangs = order.stage is stages[2] and name == "workers-1"
                await asyncio.sleep(10_000 if hangs else 100 if name == "workers-1" else 1000)
                built.append(f"{name} {stages.index(order.stage)}")
                groups.finish(name, number, "built")  # type: ignore[arg-type]  # it is handed on

        def start(name: str, demand: Demand) -> StartedGroup:
            task = asyncio.ensure_future(live(name))

            async def abort() -> None:
                task.cancel()

            return StartedGroup(ended=task, abort=abort)

        groups = WorkerGroups(start, is_wanted=lambda: False, linger_s=2000)
        context = Context(store=ArtifactStore(Path("/nowhere")), data_root=Path("/nowhere"), runtime=Runtime())
        submission = Submission(context=context, trainings_at_once=2)
        stages = [stage for stage in _stages("rcl_sts.yaml") if stage.kind == "train"][:4]
        await asyncio.gather(*(groups.build(stage, submission, GPU) for stage in stages[:2]))
        both = [asyncio.ensure_future(groups.build(stage, submission, GPU)) for stage in stages[2:]]
        await both[1]
        ended = loop.time()
        both[0].cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await groups.close()
        return built[-1], ended

    DEVICES = {"workers-1": "quick", "workers-2": "slow"}
    where, ended = run_in_virtual_time(scene())
    assert where == "workers-2 3" and 1000 + 1000 < ended < 1000 + 2 * 1000


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
