"""How a training begins, goes on from a checkpoint and writes one, with the events that say so."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from sentdist.execution.board.events import StageEvent, What
from sentdist.execution.board.submissions import EventSink
from sentdist.execution.training.checkpoints import RunningFolder
from sentdist.learning.checkpoint import DevScore, UnusableCheckpoint
from sentdist.learning.loop import StepReport
from sentdist.plan.sections import Runtime
from sentdist.plan.stages import Rung, Train
from sentdist.stages.context import lost_input
from sentdist.stages.train import TrainSession


def begin_or_resume(make: Callable[[], TrainSession], running: RunningFolder, stage: Train | Rung, sink: EventSink | None) -> TrainSession:
    """A session that goes on from the newest checkpoint of use, or begins; on every rank alike. sink: of the rank that speaks.

    Says which checkpoint it goes on from, why others are of no use, and where those lie now.
    """
    session, is_fresh = make(), True

    def load(folder: Path) -> str | None:
        nonlocal session, is_fresh
        if not is_fresh:  # an earlier checkpoint was loaded in part
            session = make()
        is_fresh = False
        try:
            session.load(folder)
        except UnusableCheckpoint as error:
            return str(error)
        return None

    step, notes = running.resume(load)
    if step is None and not is_fresh:
        session = make()
    if sink is not None:
        for note in notes:
            sink.post(_event(stage, session, "resumed", message=note))
        if step is not None:
            sink.post(_event(stage, session, "resumed"))
        elif notes:
            sink.post(_event(stage, session, "resumed", message="starts over: no checkpoint is of use"))
    return session


def save_checkpoint(session: TrainSession, running: RunningFolder, stage: Train | Rung, sink: EventSink | None) -> None:
    """Write a checkpoint. One that cannot be written is reported, and the training goes on: what it had written before is still there.

    Raises:
        ArtifactLost: an input was changed under the training, as any rank saw it; on all ranks. Earlier checkpoints are of the whole input.
    """
    with running.ranks.errors_on_all():
        if (loss := lost_input()) is not None:
            raise loss
    problem = running.save(session.save, step=session.progress.step)
    if problem is not None and sink is not None:
        message = f"its checkpoint could not be written ({problem}); the training goes on, the checkpoint before it stays"
        sink.post(_event(stage, session, "checkpoint", message=message))


def post_resumed(stage: Train | Rung, session: TrainSession, sink: EventSink, message: str | None) -> None:
    """Say that a training goes on from a rung, or why it does not."""
    sink.post(_event(stage, session, "resumed", message=message))


def _event(stage: Train | Rung, session: TrainSession, what: What, message: str | None = None) -> StageEvent:
    may_change = what == "resumed" and session.context.runtime.workers_may_change
    return StageEvent.of(
        stage, what, message=message, step=session.progress.step, num_steps=session.schedule.num_steps,
        num_workers=session.engine.world_size if may_change else None,
    )  # fmt: skip


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
