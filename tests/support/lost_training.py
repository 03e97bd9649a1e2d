"""A training in this process that is taken away at a step, as a host that is lost takes it."""

from __future__ import annotations

from sentdist.run.events import StageEvent
from sentdist.run.submissions import EventSink


class HostLost(BaseException):
    """Stands for what no `except Exception` catches: the process goes away."""


class RecordingSink(EventSink):
    """Keeps the events; takes the process away at the report of step `lost_at`."""

    reported: list[StageEvent]
    lost_at: int | None

    def __init__(self, lost_at: int | None = None) -> None:
        super().__init__(board=None)
        object.__setattr__(self, "reported", [])
        object.__setattr__(self, "lost_at", lost_at)

    def post(self, event: StageEvent) -> None:
        self.reported.append(event)
        if event.what == "step" and event.step == self.lost_at:
            raise HostLost
