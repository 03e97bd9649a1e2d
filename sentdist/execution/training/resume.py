"""How a training begins, goes on from a checkpoint and writes one, with the events that say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sentdist.execution.board.event_sink import EventSink
from sentdist.execution.board.events import StageEvent, What
from sentdist.execution.training.checkpoints import RunningFolder
from sentdist.learning.checkpoint import UnusableCheckpoint
from sentdist.plan.stages import Rung, Train
from sentdist.stages.inputs_in_use import lost_input
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
