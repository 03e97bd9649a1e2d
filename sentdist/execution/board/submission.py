"""What one submitted job brings along to everything that is built for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Reversible
from dataclasses import dataclass, field

from sentdist.errors import SweepStopped
from sentdist.execution.capacity import pools_at_once
from sentdist.stages.context import Context
from sentdist.tracking.tracker import NullTracker, Tracker


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Travels by pickle to the board, to stages and to trials; nothing in it changes a result.

    sweep: name of the recipe. may_have: CPUs and GPUs that an autoscaler may bring the cluster to; None: nobody adds nodes.
    """

    context: Context
    tracker: Tracker = field(default_factory=NullTracker)
    trainings_at_once: int = 1
    sweep: str = "unnamed"
    may_have: tuple[float, float] | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


def most_pools(submissions: Iterable[Submission]) -> int:
    """How many pools may be driven at once for these: as many as the one may that knows of the largest cluster."""
    found = (pools_at_once(trainings_at_once=one.trainings_at_once, workers=one.context.runtime.most_workers) for one in submissions)
    return max(found, default=1)


def newest_may_have(submissions: Reversible[Submission]) -> tuple[float, float] | None:
    """What the newest of these found that an autoscaler may bring the cluster to; it was asked on its head, where that is known."""
    return next((found for one in reversed(submissions) if (found := one.may_have) is not None), None)


def stopped(sweep: str, *, goes_on: str = "trainings go on from their last checkpoints") -> SweepStopped:
    """The error that a stopped submission gets. goes_on: what happens when it is submitted again."""
    return SweepStopped(
        where=sweep,
        found="that it was stopped by `sentdist stop`",
        expected="that it goes on",
        remedy=f"What is finished is kept. Submit it again: {goes_on}.",
    )
