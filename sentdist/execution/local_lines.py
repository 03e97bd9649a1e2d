"""A run in this process told in the lines that a run on a cluster is told in."""

from __future__ import annotations

from collections.abc import Callable

from sentdist.execution.progress import SPEAK_EVERY, StageEvent
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.loop import StepReport
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Train
from sentdist.stages.local import Listener
from sentdist.stages.train import TrainSession
from sentdist.store.store import Artifact


def local_listener(speak: Callable[[str], None]) -> Listener:
    """A listener for `run_local` that says every tenth of a training, every dev score and every finished stage."""

    def listen(stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> None:
        told = _told(stage, session, event)
        if told is not None:
            speak(told.line)

    return listen


def _told(stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> StageEvent | None:
    if isinstance(event, Artifact):
        return StageEvent(key=stage.key, kind=stage.kind, label=stage.label, what="finished", seconds=event.record.seconds)
    assert session is not None and isinstance(stage, Train), "only trainings have steps"
    num_steps = session.schedule.num_steps
    if isinstance(event, DevScore):
        assert stage.selection is not None, "a dev score needs a selection"
        return StageEvent(
            key=stage.key, kind=stage.kind, label=stage.label, what="dev", step=event.step, num_steps=num_steps,
            task=stage.selection.name, score=event.score, is_best=session.progress.best_step == event.step,
        )  # fmt: skip
    every = max(1, round(num_steps * SPEAK_EVERY))
    if (event.step + 1) % every:
        return None
    return StageEvent(
        key=stage.key, kind=stage.kind, label=stage.label, what="step", step=event.step + 1, num_steps=num_steps, loss=event.loss,
        sentences_per_s=event.num_sentences / event.seconds.total if event.seconds.total else None,
    )  # fmt: skip
