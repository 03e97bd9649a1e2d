"""A worker of a group that stays: builds one stage after another, alone or together with the others of its group."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import ray
import torch
from ray.exceptions import RayActorError

from sentdist.errors import SentdistError
from sentdist.execution.banks.lookup import bank_of
from sentdist.execution.board.heartbeats import Heartbeats
from sentdist.execution.board.stage_task import EventSink, GroupMember
from sentdist.execution.board.submission import Submission
from sentdist.execution.board.worker_groups import Order
from sentdist.execution.parallel.ranks import ranks_here
from sentdist.execution.parallel.shards import build_over_ranks
from sentdist.execution.reserved import use_reserved
from sentdist.execution.resources import stage_demand
from sentdist.execution.training.checkpoint_clock import CheckpointClock
from sentdist.execution.training.checkpoints import RunningFolder, forget_running
from sentdist.execution.training.engines import engine_of
from sentdist.execution.training.reporter import ProgressReporter
from sentdist.execution.training.resume import begin_or_resume, save_checkpoint
from sentdist.learning.freed_memory import give_back_freed_memory
from sentdist.plan.stages import Bank, Targets, Train
from sentdist.stages.context import Context
from sentdist.stages.gpu_memory import full_gpu_told
from sentdist.stages.sharded import Sharded
from sentdist.stages.train import TrainSession, commit_training
from sentdist.store.scratch import scratch_folder
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import NullRun, RunHandle


def build_orders(member: GroupMember) -> None:
    """Build what the board orders until it says that the group shall leave, or is gone itself.

    Raises:
        Exception: what a training of several workers met that is none of ours, such as a peer that is gone: the group is lost with it.
    """
    is_first = ranks_here().is_first
    number = 0
    with suppress(RayActorError):  # the board is gone: whoever needs the work asks another one
        while (order := _next_order(member, number, is_first=is_first)) is not None:
            number = order.number
            sink = replace(member.sink, order=(member.name, number))
            if is_first:
                answer = _build(member, order, sink)
                ray.get(member.sink.board.finish.remote(member.name, number, answer))
            else:
                _follow(order, sink)
            _let_go()


def train_in_group(stage: Train, submission: Submission, sink: EventSink, run: RunHandle) -> Artifact:
    """On the first worker: train together with the others, going on from the last checkpoint if an earlier attempt left one.

    Raises:
        SentdistError: what a person must fix; raised on all workers at the same step.
        Exception: what ends the group.
    """
    sink.call_group()
    with full_gpu_told(stage, submission.context):
        artifact = _train_rank(stage, submission.context, sink, run)
    assert artifact is not None, "the first worker commits"
    forget_running(submission.context.store, stage)
    return artifact


def shards_in_group(stage: Sharded, submission: Submission, sink: EventSink) -> Artifact:
    """On the first worker: make the shards of a stage together with the others."""
    sink.call_group()
    artifact = build_over_ranks(stage, submission.context, ranks_here(), sink=sink)
    assert artifact is not None, "the first worker commits"
    return artifact


def _build(member: GroupMember, order: Order, sink: EventSink) -> Artifact | Exception:
    """What the first worker says of an order. An error that may be a peer's end is not an answer."""
    is_shared = stage_demand(order.stage, order.submission.context.runtime).way != "task"
    try:
        return member.body(order.stage, order.submission, sink)
    except SentdistError as error:
        return error
    except Exception as error:
        if is_shared:
            raise
        return error


def _follow(order: Order, sink: EventSink) -> None:
    """What the other workers do for an order that the first one has begun.
    What a person must fix all of them raise at the same step, and the first one says it; but a GPU may be full for one of them alone."""
    stage, context = order.stage, order.submission.context
    with full_gpu_told(stage, context), suppress(SentdistError):
        match stage:
            case Train():
                _train_rank(stage, context, sink, NullRun())
            case Bank() | Targets():
                build_over_ranks(stage, context, ranks_here(), sink=sink)
            case _:
                raise TypeError(f"{stage.kind} is built by one process")


def _train_rank(stage: Train, context: Context, sink: EventSink, run: RunHandle) -> Artifact | None:
    """One rank from start or checkpoint to the end; the first one commits."""
    started = time.perf_counter()
    use_reserved(stage_demand(stage, context.runtime))
    ranks = ranks_here()
    with Heartbeats(stage, sink, worker=f"rank {ranks.rank}") as heartbeats:
        running = RunningFolder(context.store, stage, rank=ranks.rank, world_size=ranks.world_size, exchange=ranks.exchange)
        begin = partial(_start_session, stage, context)
        session = begin_or_resume(begin, running, stage, sink if running.is_first else None)
        _train(session, running, stage, context, sink, run, heartbeats)
        with ExitStack() as stack:
            folder = stack.enter_context(context.store.staged() if running.is_first else _scratch())
            results = session.finish(folder)
            seconds = time.perf_counter() - started
            return commit_training(stage, folder, context, results=results, seconds=seconds) if running.is_first else None


def _start_session(stage: Train, context: Context) -> TrainSession:
    """A session on every rank, or the error of one of them on every rank:
    one that failed must not leave the others waiting in a collective."""
    session, error = _try_session(stage, context)
    first = next((found for found in ranks_here().exchange(error) if found is not None), None)
    if first is not None:
        assert isinstance(first, SentdistError)
        raise first
    assert session is not None, "no rank has an error"
    return session


def _try_session(stage: Train, context: Context) -> tuple[TrainSession | None, SentdistError | None]:
    from ray.train.torch import get_device  # seconds, which a group of one worker without Ray Train never pays

    try:
        make_engine = engine_of(context.runtime, str(get_device()))
        return TrainSession(stage, context, make_engine=make_engine, bank=bank_of(stage, context)), None
    except SentdistError as error:
        return None, error


def _train(
    session: TrainSession,
    running: RunningFolder,
    stage: Train,
    context: Context,
    sink: EventSink,
    run: RunHandle,
    heartbeats: Heartbeats,
) -> None:
    clock = CheckpointClock(context.runtime, rank=session.engine.rank, is_leaving=heartbeats.is_leaving)
    with ExitStack() as stack:
        reporter = None
        if running.is_first:
            reporter = stack.enter_context(closing(ProgressReporter(stage, session, sink, run, heartbeats)))
        for event in session.events(tell=clock.tell):
            if reporter is not None:
                reporter.on_event(event)
            if clock.is_due(event, told=session.told):
                save_checkpoint(session, running, stage, sink if running.is_first else None)
                clock.restart()


@contextmanager
def _scratch() -> Iterator[Path]:
    with scratch_folder(Path(tempfile.gettempdir()), "rank") as folder:
        yield folder


def _next_order(member: GroupMember, after: int, *, is_first: bool) -> Order | None:
    order: Order | None = ray.get(member.sink.board.next_order.remote(member.name, after, is_first=is_first))
    return order


def _let_go() -> None:
    """Give back what a stage leaves behind: nothing of it may be held while the next one runs, or while the group waits."""
    gc.collect()
    give_back_freed_memory()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
