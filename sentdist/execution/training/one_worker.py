"""A training on one worker with the torch engine, in the process of a plain Ray task."""

from __future__ import annotations

import time
from contextlib import closing

from sentdist.execution.banks.lookup import bank_of
from sentdist.execution.board.heartbeats import Heartbeats
from sentdist.execution.board.stage_task import EventSink
from sentdist.execution.board.submission import Submission
from sentdist.execution.reserved import use_reserved
from sentdist.execution.resources import stage_demand
from sentdist.execution.training.checkpoint_clock import CheckpointClock
from sentdist.execution.training.checkpoints import RunningFolder, forget_running
from sentdist.execution.training.engines import engine_of
from sentdist.execution.training.reporter import ProgressReporter
from sentdist.execution.training.resume import begin_or_resume, save_checkpoint
from sentdist.plan.stages import Train
from sentdist.stages.gpu_memory import full_gpu_told
from sentdist.stages.train import TrainSession, commit_training
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import RunHandle


def train_in_task(stage: Train, submission: Submission, sink: EventSink, run: RunHandle) -> Artifact:
    """Train here, going on from the last checkpoint if an earlier attempt left one. The board repeats the task when its process is lost."""
    with Heartbeats(stage, sink) as heartbeats, full_gpu_told(stage, submission.context):
        return _train(stage, submission, sink, run, heartbeats)


def _train(stage: Train, submission: Submission, sink: EventSink, run: RunHandle, heartbeats: Heartbeats) -> Artifact:
    started = time.perf_counter()
    use_reserved(stage_demand(stage, submission.context.runtime))
    context = submission.context
    running = RunningFolder(context.store, stage)
    device = "cuda" if context.runtime.gpus_per_worker else "cpu"
    bank = bank_of(stage, context)
    session = begin_or_resume(
        lambda: TrainSession(stage, context, make_engine=engine_of(context.runtime, device), bank=bank), running, stage, sink
    )
    reporter = ProgressReporter(stage, session, sink, run, heartbeats)
    clock = CheckpointClock(context.runtime, is_leaving=heartbeats.is_leaving)
    with closing(reporter):
        for event in session.events(tell=clock.tell):
            reporter.on_event(event)
            if clock.is_due(event, told=session.told):
                save_checkpoint(session, running, stage, sink)
                clock.restart()
    with context.store.staged() as folder:
        results = session.finish(folder)
        artifact = commit_training(stage, folder, context, results=results, seconds=time.perf_counter() - started)
    forget_running(context.store, stage)
    return artifact
