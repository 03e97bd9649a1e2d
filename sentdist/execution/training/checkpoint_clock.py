"""When a training writes a checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from sentdist.plan.runtime import Runtime
from sentdist.stages.train import TrainSession

# A dev score is worth a checkpoint, but on quick trainings (a score a second) writing 270 MB each time would cost more than training.
SCORE_FRACTION = 0.1


class CheckpointClock:
    """Due every `checkpoint_every_s` seconds, at a dev score once a tenth of that has passed, and once as soon as a host is about to leave.

    All ranks come to the same answer, also where only one of them knows that its host leaves.
    """

    def __init__(self, runtime: Runtime, *, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._every_s = runtime.checkpoint_every_s
        self._look_every = runtime.log_every  # steps between two looks at the clock: a look costs an all-reduce of one number
        self._is_leaving = is_leaving
        self._has_hurried = False
        self._since = time.monotonic()

    def restart(self) -> None:
        """A checkpoint was written."""
        self._since = time.monotonic()
        self._has_hurried = self._has_hurried or self._is_leaving()

    @property
    def seconds(self) -> float:
        """Since the last checkpoint, on this rank; without end while its host is about to leave and there is none of that time."""
        if self._is_leaving() and not self._has_hurried:
            return math.inf
        return time.monotonic() - self._since

    def is_due(self, session: TrainSession, *, at_score: bool) -> bool:
        """Whether to write one now; collective."""
        if not at_score and session.progress.step % self._look_every:
            return False
        passed_s = session.engine.global_mean(torch.tensor(self.seconds, dtype=torch.float64))
        return passed_s >= self._every_s * (SCORE_FRACTION if at_score else 1.0)
