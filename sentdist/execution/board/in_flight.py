"""The stages that are being built at this moment, and the submissions that need each of them."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field

import ray

from sentdist.execution.demand import Demand
from sentdist.plan.stage import Stage


@dataclass(kw_only=True)
class Work:
    """A stage that is being built. asked_by: the submissions that need it, for itself or as an input of something else. distance: stages
    on the longest way from it to what was asked for itself."""

    ref: ray.ObjectRef
    stage: Stage
    demand: Demand
    asked_by: set[str] = field(default_factory=set)
    distance: int = 0


class StagesInFlight:
    """At most one piece of work for each key. Iterating gives all work, an input before what waits for it."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}

    def __len__(self) -> int:
        return len(self._works)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works.values())

    def get(self, key: str) -> Work | None:
        return self._works.get(key)

    def holds(self, work: Work) -> bool:
        """Whether it is still the work for its key: it may have been released, and the stage started again."""
        return self._works.get(work.stage.key) is work

    def add(self, work: Work) -> None:
        self._works[work.stage.key] = work

    def remove(self, work: Work) -> None:
        del self._works[work.stage.key]

    def need(self, stage: Stage, submission_id: str, distance: int = 0) -> None:
        """A submission needs a stage that is in flight, hence those of its inputs that are in flight."""
        work = self.get(stage.key)
        if work is not None and (submission_id not in work.asked_by or distance > work.distance):
            work.asked_by.add(submission_id)
            work.distance = max(work.distance, distance)
            for needed in stage.inputs:
                self.need(needed, submission_id, distance + 1)

    def release(self, submission_ids: Set[str]) -> list[Work]:
        """Remove what only these submissions need; what waits for an input comes before the input."""
        for work in self:
            work.asked_by -= submission_ids
        unneeded = [work for work in reversed(self._works.values()) if not work.asked_by]
        for work in unneeded:
            self.remove(work)
        return unneeded

    def needed_by(self, submission_id: str) -> set[str]:
        """The keys of what a submission needs."""
        return {work.stage.key for work in self if submission_id in work.asked_by}

    def with_all_inputs(self) -> list[Work]:
        """What has nothing to wait for but the cluster."""
        return [work for work in self if not any(needed.key in self._works for needed in work.stage.inputs)]
