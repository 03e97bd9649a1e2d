"""What a process that builds stages is handed: how it builds one, and where it posts what happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from sentdist.execution.board.diagnosis import STANDSTILL_S
from sentdist.execution.board.events import StageEvent
from sentdist.execution.board.heartbeats import Heartbeat
from sentdist.execution.board.submission import Submission
from sentdist.execution.demand import Demand
from sentdist.plan.stage import Stage
from sentdist.store.store import Artifact

BEATS_IN_TIME = 6  # heartbeats that a worker sends in the time after which its silence is reported

Body = Callable[[Stage, Submission, "EventSink"], Artifact]


@dataclass(frozen=True, kw_only=True)
class EventSink:
    """Posts to the board what happens to stages; travels to whoever builds one. every_s: seconds between two heartbeats."""

    board: Any  # the actor's handle
    every_s: float = STANDSTILL_S / BEATS_IN_TIME
    order: tuple[str, int] | None = None  # name of the worker group that builds the stage, and number of the order

    def post(self, event: StageEvent) -> None:
        """Post an event and go on; events to a dead board are dropped."""
        self.board.post.remote(event)

    def beat(self, heartbeat: Heartbeat) -> None:
        """Post a heartbeat, as `post` posts an event."""
        self.board.beat.remote(heartbeat)

    def call_group(self) -> None:
        """Have the other workers of the group begin this stage, too."""
        assert self.order is not None, "a training of several workers is built by a group"
        ray.get(self.board.begin.remote(*self.order))


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """What every worker of a group that stays is handed. name: of the group. body: builds a stage, on the group's first worker."""

    name: str
    demand: Demand
    body: Body
    sink: EventSink
