"""Assign stages to resident workers, which share one start-up (libraries, device, process group) between several stages.

A group is one process or a worker group of Ray Train. It holds its CPUs and GPUs from its start to its end and builds one stage at a
time: the first group that is free takes the stage with the longest path before it. An idle group is sent away as soon as other work
waits for room, so that no work waits for resources held by an idle group.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sentdist.recipe.stage import Stage
from sentdist.run.losses import GroupLostError
from sentdist.run.resources import Demand
from sentdist.run.submissions import BackgroundTasks, Submission
from sentdist.store.store import Artifact

LINGER_S = 5.0  # an idle group waits this long for the next stage: that of the next trial comes within a second
GRACE_S = 0.5  # an idle group waits this long even if others wait for room: requests follow the last answer
CLOSES_WITHIN_S = 60.0  # how long Ray Train may take to end a group
MAX_COMING = 32  # processes on CPUs that wait for room at once; an autoscaler sees them


@dataclass(frozen=True, kw_only=True)
class Order:
    """A stage that a group must build. number: of the order within its group, from 1."""

    number: int
    stage: Stage
    submission: Submission


@dataclass(frozen=True, kw_only=True)
class StartedGroup:
    """A started group. ended: returns when it has left, raises the error that ended it. abort: ends it by force."""

    ended: Awaitable[None]
    abort: Callable[[], Awaitable[None]]


StartGroup = Callable[[str, Demand], StartedGroup]  # with the name of the group


@dataclass(kw_only=True, eq=False)
class _Waiting:
    """A stage that waits for a group, then for the group's answer. distance: stages between it and a requested stage."""

    stage: Stage
    submission: Submission
    demand: Demand
    distance: int
    answer: asyncio.Future[Artifact]


@dataclass(kw_only=True, eq=False)
class _Group:
    """A group and its current work."""

    name: str
    demand: Demand
    started: StartedGroup
    work: _Waiting | None = None
    order: Order | None = None
    has_begun: bool = False
    is_up: bool = False  # its first worker has asked for an order
    is_leaving: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_idle(self) -> bool:
        return self.is_up and self.work is None and not self.is_leaving

    @property
    def is_coming(self) -> bool:
        return not self.is_up and not self.is_leaving

    @property
    def number(self) -> int:
        """Number of the last order; 0 before the first."""
        return 0 if self.order is None else self.order.number

    def give(self, work: _Waiting) -> None:
        self.work, self.has_begun = work, False
        self.order = Order(number=self.number + 1, stage=work.stage, submission=work.submission)
        self.tell()

    def tell(self) -> None:
        """Wake all that wait for news of this group."""
        self.news.set()
        self.news = asyncio.Event()


class WorkerGroups:
    """The groups of a board, and the stages that wait for one, longest remaining path first. Lives in the board's event loop."""

    def __init__(self, start: StartGroup, *, linger_s: float = LINGER_S) -> None:
        self._start, self._linger_s = start, linger_s
        self._groups: dict[str, _Group] = {}
        self._line: list[_Waiting] = []
        self._numbers = itertools.count(1)
        self._background = BackgroundTasks()

    async def build(self, stage: Stage, submission: Submission, demand: Demand, *, distance: int = 0) -> Artifact:
        """Build a stage by an idle group, else by the first that is free, or by a new one if the limit allows it.

        Raises:
            Exception: the stage's body raised it, or it ended the group.
        """
        answer: asyncio.Future[Artifact] = asyncio.get_running_loop().create_future()
        work = _Waiting(stage=stage, submission=submission, demand=demand, distance=distance, answer=answer)
        self._line.append(work)
        self._assign()
        try:
            return await work.answer
        finally:
            if work in self._line:
                self._line.remove(work)
                self._assign()  # a group that was started for it is not needed
            for group in [group for group in self._groups.values() if group.work is work]:  # the caller was cancelled
                await self._end(group, by_force=True)

    async def next_order(self, name: str, after: int, *, is_first: bool) -> Order | None:
        """Wait for the order after number `after`; return None if the group must leave.

        The first worker gets an order at once; the others get it when the first one calls them, which it does only for common work.
        """
        if is_first and (group := self._groups.get(name)) is not None and not group.is_up:
            group.is_up = True
            self._assign()
            self._background.start(self._rest(group, group.number))
        while (group := self._groups.get(name)) is not None and not group.is_leaving:
            if group.order is not None and group.work is not None and group.number > after and (is_first or group.has_begun):
                return group.order
            await group.news.wait()
        return None

    def begin(self, name: str, number: int) -> None:
        """Give this order to the other workers."""
        group = self._groups.get(name)
        if group is not None and group.number == number:
            group.has_begun = True
            group.tell()

    def finish(self, name: str, number: int, answer: Artifact | BaseException) -> None:
        """Take a group's answer to an order. After an error its processes are not used again."""
        group = self._groups.get(name)
        if group is None or group.work is None or group.number != number:
            return
        work, group.work = group.work, None
        if isinstance(answer, BaseException):
            _fail(work, answer)
            group.is_leaving = True
            self._background.start(self._end(group))
        elif not work.answer.done():
            work.answer.set_result(answer)
        self._assign()
        if not group.is_leaving:
            self._background.start(self._rest(group, number))

    async def close(self) -> None:
        """End all groups: the idle ones in order, the others by force."""
        await asyncio.gather(*(self._end(group, by_force=group.work is not None) for group in list(self._groups.values())))

    def _assign(self) -> None:
        """Give waiting stages to idle groups; start groups for the others, and end those that start for nothing."""
        coming = [group for group in self._groups.values() if group.is_coming]
        for work in sorted(self._line, key=lambda work: -work.distance):
            if (group := next((one for one in self._groups.values() if one.is_idle and _fits(one, work.demand)), None)) is not None:
                self._line.remove(work)
                group.give(work)
            elif (group := next((one for one in coming if _fits(one, work.demand)), None)) is not None:
                coming.remove(group)
            else:
                self._start_for(work)
        for group in coming:
            self._background.start(self._end(group))

    def _start_for(self, work: _Waiting) -> None:
        """Start a group for a stage, if there may be one more. Idle groups, which cannot build this stage, make room for it."""
        demand, at_once = work.demand, work.submission.trainings_at_once
        for idle in [group for group in self._groups.values() if group.is_idle]:
            self._background.start(self._end(idle))
        if demand.is_scarce:
            is_full = sum(group.demand.is_scarce for group in self._groups.values()) >= at_once
        else:
            is_full = sum(group.is_coming and not group.demand.is_scarce for group in self._groups.values()) >= MAX_COMING
        if is_full:
            return
        name = f"{'worker' if demand.way == 'task' else 'workers'}-{next(self._numbers)}"
        group = _Group(name=name, demand=demand, started=self._start(name, demand))
        self._groups[name] = group
        self._background.start(self._watch(group))

    async def _rest(self, group: _Group, number: int) -> None:
        """Send a group away if it gets no further order in time."""
        await asyncio.sleep(GRACE_S)
        if not self._line:
            await asyncio.sleep(self._linger_s)
        if group.number == number and group.is_idle:
            await self._end(group)

    async def _watch(self, group: _Group) -> None:
        """Remove a group that has ended, and fail the work that waits for it."""
        error: BaseException = GroupLostError(RuntimeError(f"{group.name} left before its work was done"))
        try:
            await group.started.ended
        except (Exception, asyncio.CancelledError) as found:
            error = found
        failed = group.work
        if failed is None and group.is_coming:  # it could not be started: the stage that waits for it gets the error
            failed = next((work for work in sorted(self._line, key=lambda work: -work.distance) if _fits(group, work.demand)), None)
        group.is_leaving = True
        del self._groups[group.name]
        group.tell()
        if failed is not None:
            _fail(failed, error)
            self._line = [work for work in self._line if work is not failed]
        self._assign()

    async def _end(self, group: _Group, *, by_force: bool = False) -> None:
        """Let a group leave; abort it with `by_force` or if it does not leave.

        A group of Ray Train that is still starting leaves as soon as it is up: Ray does not free the placement group of a controller that
        dies while it starts its workers.
        """
        group.is_leaving = True
        group.tell()
        is_over = (by_force and group.is_up) or (group.demand.way == "task" and not group.is_up)
        if is_over:
            await group.started.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSES_WITHIN_S):
                while group.name in self._groups:
                    await group.news.wait()
        if group.name in self._groups and not is_over:
            await group.started.abort()


def _fits(group: _Group, demand: Demand) -> bool:
    """A group builds what has its demand, and work for one worker if its workers are large enough."""
    offered = group.demand
    if group.is_leaving or (demand.is_alone and offered.workers > 1):
        return False
    if demand.way == "group":
        return demand == offered
    return demand.num_cpus <= offered.num_cpus and demand.num_gpus <= offered.num_gpus and demand.gpu_type in (None, offered.gpu_type)


def _fail(work: _Waiting, error: BaseException) -> None:
    if not work.answer.done():
        work.answer.set_exception(error)
