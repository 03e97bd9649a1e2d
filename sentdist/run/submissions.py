"""Track stages in flight and the submissions that need them; post events; run background tasks."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Set
from dataclasses import dataclass, field
from typing import Any

import ray

from sentdist.errors import SweepStopped
from sentdist.recipe.stage import Stage
from sentdist.run.events import StageEvent
from sentdist.run.resources import Demand
from sentdist.stages.context import Context
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import Tracker


@dataclass(kw_only=True)
class Work:
    """A stage that is being built. asked_by: submissions that need it. distance: stages on the longest path to a requested stage."""

    task: asyncio.Task[None]
    stage: Stage
    asked_by: set[str] = field(default_factory=set)
    distance: int = 0


class StagesInFlight(dict[str, Work]):
    """At most one work for each key of a stage; inputs come before the stages that wait for them."""

    def need(self, stage: Stage, submission_id: str, distance: int = 0) -> None:
        """Note that a submission needs a stage in flight, and its inputs in flight."""
        work = self.get(stage.key)
        if work is not None and (submission_id not in work.asked_by or distance > work.distance):
            work.asked_by.add(submission_id)
            work.distance = max(work.distance, distance)
            for needed in stage.inputs:
                self.need(needed, submission_id, distance + 1)

    def release(self, submission_ids: Set[str]) -> list[Work]:
        """Remove and return what only these submissions need, inputs last."""
        for work in self.values():
            work.asked_by -= submission_ids
        unneeded = [work for work in reversed(self.values()) if not work.asked_by]
        for work in unneeded:
            del self[work.stage.key]
        return unneeded

    def needed_by(self, submission_id: str) -> set[str]:
        """Return the keys of the stages in flight that a submission needs."""
        return {work.stage.key for work in self.values() if submission_id in work.asked_by}


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One submission of a sweep or search, sent to the board, stages and trials; nothing in it changes a result."""

    context: Context
    tracker: Tracker = field(default_factory=Tracker)
    trainings_at_once: int = 1
    sweep: str = "unnamed"  # name of the recipe
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


def stopped(sweep: str, *, goes_on: str = "trainings go on from their last checkpoints") -> SweepStopped:
    """Return the error of a stopped submission. goes_on: what happens when it is submitted again."""
    return SweepStopped(
        where=sweep,
        found="that it was stopped by `sentdist stop`",
        expected="that it goes on",
        remedy=f"What is finished is kept. Submit it again: {goes_on}.",
    )


Body = Callable[[Stage, Submission, "EventSink"], Artifact]


@dataclass(frozen=True, kw_only=True)
class EventSink:
    """Posts events of stages to the board; sent to the process that builds a stage."""

    board: Any  # the actor's handle
    order: tuple[str, int] | None = None  # name of the worker group that builds the stage, and number of the order

    def post(self, event: StageEvent) -> None:
        """Post an event without waiting; events to a dead board are dropped."""
        self.board.post.remote(event)

    def call_group(self) -> None:
        """Let the other workers of the group begin this stage."""
        assert self.order is not None, "a training of several workers is built by a group"
        ray.get(self.board.begin.remote(*self.order))


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """Arguments of every worker of a group. name: of the group. body: builds a stage, on the group's first worker."""

    name: str
    demand: Demand
    body: Body
    sink: EventSink


log = logging.getLogger(__name__)


class BackgroundTasks:
    """Tasks without a waiting caller. Their errors are logged at once."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references to its tasks

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended with an error", task.get_coro(), exc_info=error)
