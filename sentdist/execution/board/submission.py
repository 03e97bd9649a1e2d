"""What one submitted job brings along to everything that is built for it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

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
