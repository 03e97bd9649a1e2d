"""When a training writes a checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from sentdist.learning.checkpoint import DevScore
from sentdist.learning.loop import StepReport
from sentdist.plan.runtime import Runtime

# A dev score is worth a checkpoint, but on quick trainings (a score a second) writing 270 MB each time would cost more than training.
SCORE_FRACTION = 0.1


class CheckpointClock:
    """Due every `checkpoint_every_s` seconds, at a dev score once a tenth of that has passed, and once as soon as a host is about to leave;
    where the engine has begun another step by then, after that one.

    The first rank's clock decides, and any rank may hurry all. Their `vote` comes to all ranks with the events of a session, so that
    all come to the same answer, and no step has a collective more.
    """

    def __init__(self, runtime: Runtime, *, rank: int = 0, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._every_s = runtime.checkpoint_every_s
        self._look_every = runtime.log_every  # steps between two looks at the clock
        self._is_first = rank == 0
        self._is_leaving = is_leaving
        self._has_hurried = False
        self._since = time.monotonic()
        self.is_owed = False  # whether one was due at an event at which none could be written: the engine was ahead

    def restart(self) -> None:
        """A checkpoint was written."""
        self._since = time.monotonic()
        self._has_hurried = self._has_hurried or self._is_leaving()

    def vote(self) -> float:
        """What this rank tells all ranks. The first one: the seconds since the last checkpoint; the others: 0. Any of them: infinity, while
        its host is about to leave and no checkpoint was written since it knows."""
        if self._is_leaving() and not self._has_hurried:
            return math.inf
        return time.monotonic() - self._since if self._is_first else 0.0

    def is_due(self, event: StepReport | DevScore, *, votes: float) -> bool:
        """Whether to write one now. votes: the sum of those of all ranks at this event."""
        if isinstance(event, DevScore):
            return votes >= self._every_s * SCORE_FRACTION
        is_due = self.is_owed or ((event.step + 1) % self._look_every == 0 and votes >= self._every_s)
        self.is_owed = is_due and not event.is_latest
        return is_due and event.is_latest
