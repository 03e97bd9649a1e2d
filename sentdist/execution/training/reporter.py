"""Progress of a training, reported by rank 0: lines through the board, points of the curve to the tracker."""

from __future__ import annotations

from sentdist.execution.board.event_sink import EventSink
from sentdist.execution.board.events import progress_event
from sentdist.execution.board.heartbeats import Heartbeats
from sentdist.execution.prometheus import SENTENCES, add
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.loop import StepReport
from sentdist.plan.stages import Rung, Train
from sentdist.stages.train import TrainSession
from sentdist.tracking.tracker import RunHandle, TrackedCurve


class ProgressReporter:
    """Follows every event of a session; posts every tenth of the steps and every dev score.

    heartbeats: get how far the training is.
    """

    def __init__(self, stage: Train | Rung, session: TrainSession, sink: EventSink, run: RunHandle, heartbeats: Heartbeats) -> None:
        self._stage = stage
        self._session = session
        self._sink = sink
        self._run = run
        self._heartbeats = heartbeats
        self._num_steps = session.schedule.num_steps
        self._curve = TrackedCurve(run, session.history, num_sent=len(session.history))
        run.watch_system()
        heartbeats.report_step(session.progress.step, self._num_steps)

    def close(self) -> None:
        """The training is over, well or not."""
        self._run.close()

    def on_event(self, event: StepReport | DevScore) -> None:
        """Pass one event on; never raises and never waits for anybody."""
        self._curve.follow()
        self._heartbeats.report_step(self._session.progress.step, self._num_steps)
        if isinstance(event, StepReport):
            add(SENTENCES, event.num_sentences, kind=self._stage.kind)
        progress = progress_event(self._stage, self._session, event)
        if progress is not None:
            self._sink.post(progress)
