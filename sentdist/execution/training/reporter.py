"""What rank 0 of a training says while it goes: lines for people through the board, points of the curve to the tracker."""

from __future__ import annotations

from sentdist.execution.board.events import SPEAK_EVERY, StageEvent
from sentdist.execution.board.heartbeats import Pulse
from sentdist.execution.board.stage_task import Teller
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.loop import StepReport
from sentdist.plan.stages import Train
from sentdist.stages.train import TrainSession
from sentdist.tracking.tracker import RunHandle


class Narrator:
    """Hears every event of a session; speaks every tenth of the steps and at every dev score.

    pulse: learns how far the training is.
    """

    def __init__(self, stage: Train, session: TrainSession, teller: Teller, run: RunHandle, pulse: Pulse) -> None:
        self._stage = stage
        self._session = session
        self._teller = teller
        self._run = run
        self._pulse = pulse
        self._num_steps = session.schedule.num_steps
        self._num_tracked = len(session.history)
        self._next_spoken = session.progress.step + self._speak_every
        run.watch_system()
        pulse.reach(session.progress.step, self._num_steps)

    @property
    def _speak_every(self) -> int:
        return max(1, round(self._num_steps * SPEAK_EVERY))

    def close(self) -> None:
        """The training is over, well or not."""
        self._run.close()

    def hear(self, event: StepReport | DevScore) -> None:
        """Pass one event on; never raises and never waits for anybody."""
        self._track()
        self._pulse.reach(self._session.progress.step, self._num_steps)
        if isinstance(event, DevScore):
            self._tell_score(event)
        elif event.step + 1 >= self._next_spoken:
            self._next_spoken = event.step + 1 + self._speak_every
            self._tell_step(event)

    def _track(self) -> None:
        for point in self._session.history[self._num_tracked :]:
            values = {name: float(value) for name, value in point.items() if name not in ("step", "at") and isinstance(value, int | float)}
            self._run.metrics(values, step=int(str(point["step"])))
        self._num_tracked = len(self._session.history)

    def _tell_step(self, report: StepReport) -> None:
        speed = report.num_sentences / report.seconds.total if report.seconds.total else None
        self._teller.tell(
            StageEvent(
                key=self._stage.key, kind=self._stage.kind, label=self._stage.label, what="step",
                step=report.step + 1, num_steps=self._num_steps, loss=report.loss, sentences_per_s=speed,
            )
        )  # fmt: skip

    def _tell_score(self, score: DevScore) -> None:
        assert self._stage.selection is not None
        self._teller.tell(
            StageEvent(
                key=self._stage.key, kind=self._stage.kind, label=self._stage.label, what="dev",
                step=score.step, num_steps=self._num_steps, task=self._stage.selection.name, score=score.score,
                is_best=self._session.progress.best_step == score.step,
            )
        )  # fmt: skip
