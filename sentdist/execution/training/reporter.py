"""Progress of a training, reported by rank 0: lines through the board, points of the curve to the tracker."""

from __future__ import annotations

from sentdist.execution.board.event_sink import EventSink
from sentdist.execution.board.events import PRINT_EVERY, StageEvent
from sentdist.execution.board.heartbeats import Heartbeats
from sentdist.execution.prometheus import SENTENCES, add
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.loop import StepReport
from sentdist.plan.stages import Rung, Train
from sentdist.stages.train import TrainSession
from sentdist.tracking.tracker import RunHandle, TrackedCurve


class ProgressReporter:
    """Follows every event of a session; posts every tenth of the steps and every dev score.

    heartbeats: are told how far the training is.
    """

    def __init__(self, stage: Train | Rung, session: TrainSession, sink: EventSink, run: RunHandle, heartbeats: Heartbeats) -> None:
        self._stage = stage
        self._session = session
        self._sink = sink
        self._run = run
        self._heartbeats = heartbeats
        self._num_steps = session.schedule.num_steps
        self._curve = TrackedCurve(run, session.history, num_told=len(session.history))
        self._next_posted = session.progress.step + self._post_every
        run.watch_system()
        heartbeats.report_step(session.progress.step, self._num_steps)

    @property
    def _post_every(self) -> int:
        return max(1, round(self._num_steps * PRINT_EVERY))

    def close(self) -> None:
        """The training is over, well or not."""
        self._run.close()

    def on_event(self, event: StepReport | DevScore) -> None:
        """Pass one event on; never raises and never waits for anybody."""
        self._curve.follow()
        self._heartbeats.report_step(self._session.progress.step, self._num_steps)
        if isinstance(event, DevScore):
            self._post_score(event)
            return
        add(SENTENCES, event.num_sentences, kind=self._stage.kind)
        if event.step + 1 >= self._next_posted:
            self._next_posted = event.step + 1 + self._post_every
            self._post_step(event)

    def _post_step(self, report: StepReport) -> None:
        speed = report.num_sentences / report.seconds.total if report.seconds.total else None
        self._sink.post(
            StageEvent(
                key=self._stage.key, kind=self._stage.kind, label=self._stage.label, what="step",
                step=report.step + 1, num_steps=self._num_steps, loss=report.loss, sentences_per_s=speed,
            )
        )  # fmt: skip

    def _post_score(self, score: DevScore) -> None:
        selection = self._session.stage.selection
        assert selection is not None
        self._sink.post(
            StageEvent(
                key=self._stage.key, kind=self._stage.kind, label=self._stage.label, what="dev",
                step=score.step, num_steps=self._num_steps, task=selection.name, score=score.score,
                is_best=self._session.progress.best_step == score.step,
            )
        )  # fmt: skip
