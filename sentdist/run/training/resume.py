"""Start a training or resume it from a checkpoint, decide when to write checkpoints, and post the events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from sentdist.learning.checkpoint import DevScore, UnusableCheckpoint
from sentdist.learning.loop import StepReport
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Rung, Train
from sentdist.run.board.events import StageEvent, What
from sentdist.run.board.submissions import EventSink
from sentdist.run.training.checkpoints import RunningFolder
from sentdist.stages.context import lost_input
from sentdist.stages.train import TrainSession


def begin_or_resume(make: Callable[[], TrainSession], running: RunningFolder, stage: Train | Rung, sink: EventSink | None) -> TrainSession:
    """Return a session resumed from the newest usable checkpoint, or a new one; the same on every rank.

    Args:
        sink: on the first rank only; gets events on the checkpoint used, and why and where others were moved.
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
            sink.post(_event(stage, session, "resumed", message="starts over: no checkpoint is usable"))
    return session


def save_checkpoint(session: TrainSession, running: RunningFolder, stage: Train | Rung, sink: EventSink | None) -> None:
    """Write a checkpoint. If it cannot be written, report that and go on with the one before.

    Raises:
        ArtifactLost: a rank saw that an input was changed meanwhile; raised on all ranks. Earlier checkpoints are of the intact input.
    """
    with running.ranks.errors_on_all():
        if (loss := lost_input()) is not None:
            raise loss
    problem = running.save(session.save, step=session.progress.step)
    if problem is not None and sink is not None:
        message = f"its checkpoint could not be written ({problem}); the training goes on, the checkpoint before it stays"
        sink.post(_event(stage, session, "checkpoint", message=message))


def post_resumed(stage: Train | Rung, session: TrainSession, sink: EventSink, message: str | None) -> None:
    """Post that a training goes on from a rung, or why it does not."""
    sink.post(_event(stage, session, "resumed", message=message))


def _event(stage: Train | Rung, session: TrainSession, what: What, message: str | None = None) -> StageEvent:
    may_change = what == "resumed" and session.context.runtime.workers_may_change
    return StageEvent.of(
        stage, what, message=message, step=session.progress.step, num_steps=session.schedule.num_steps,
        num_workers=session.engine.world_size if may_change else None,
    )  # fmt: skip


# A dev score is worth a checkpoint, but on fast trainings (a score a second) writing 270 MB each time would cost more than training.
SCORE_FRACTION = 0.1


class CheckpointClock:
    """Decides when a checkpoint is due: every `checkpoint_every_s` seconds, at a dev score after a tenth of that, and once when a host is
    about to leave; if the engine has begun another step by then, after that step.

    The first rank's clock decides, but any rank with a leaving host makes one due. All ranks get the sum of their `vote`s with the
    events of a session, so that they decide alike without an additional collective.
    """

    def __init__(self, runtime: Runtime, *, rank: int = 0, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._every_s = runtime.checkpoint_every_s
        self._look_every = runtime.log_every  # steps between two looks at the clock
        self._is_first = rank == 0
        self._is_leaving = is_leaving
        self._has_hurried = False
        self._since = time.monotonic()
        self.is_owed = False  # whether one was due when none could be written, because the engine was ahead

    def restart(self) -> None:
        """Note that a checkpoint was written."""
        self._since = time.monotonic()
        self._has_hurried = self._has_hurried or self._is_leaving()

    def vote(self) -> float:
        """Return this rank's vote: seconds since the last checkpoint on the first rank, 0 on others; infinity while its host is about to
        leave and no checkpoint was written since the notice."""
        if self._is_leaving() and not self._has_hurried:
            return math.inf
        return time.monotonic() - self._since if self._is_first else 0.0

    def is_due(self, event: StepReport | DevScore, *, votes: float) -> bool:
        """Return True if a checkpoint must be written now. votes: sum over all ranks at this event."""
        if isinstance(event, DevScore):
            return votes >= self._every_s * SCORE_FRACTION
        is_due = self.is_owed or ((event.step + 1) % self._look_every == 0 and votes >= self._every_s)
        self.is_owed = is_due and not event.is_latest
        return is_due and event.is_latest
