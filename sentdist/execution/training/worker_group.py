"""A training on several workers: Ray Train V2 around a `TrainSession` on each rank."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch.distributed as dist
from ray.exceptions import RayActorError
from ray.train.torch import TorchConfig

# `ray.train` gives out these very classes at run time, but a type checker sees there those of Train V1.
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from sentdist.errors import SentdistError
from sentdist.execution.banks.lookup import bank_of
from sentdist.execution.board.attempts import Attempts, retry_of
from sentdist.execution.board.heartbeats import Heartbeats
from sentdist.execution.board.stage_task import EventSink
from sentdist.execution.board.submission import Submission
from sentdist.execution.reserved import use_reserved
from sentdist.execution.resources import controller_environment, nodes_of, stage_demand
from sentdist.execution.training.checkpoint_clock import CheckpointClock
from sentdist.execution.training.checkpoints import RunningFolder, forget_running, newest_step
from sentdist.execution.training.engines import engine_of
from sentdist.execution.training.reporter import ProgressReporter
from sentdist.execution.training.resume import begin_or_resume, save_checkpoint
from sentdist.plan.runtime import Runtime
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.gpu_memory import full_gpu_told
from sentdist.stages.train import TrainSession, commit_training
from sentdist.store.scratch import scratch_folder
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import RunHandle

LOST = (RayActorError, WorkerHealthCheckFailedError)  # how Ray Train says that a worker's process or host is gone
GPU_BACKEND = "cpu:gloo,cuda:nccl"  # NCCL alone serves no tensor on the host, and what ranks say to one another lies there
CONTROLLER_FAILURES = 3  # Ray's own default is no limit: a group that cannot start would be tried for ever


@dataclass(frozen=True, kw_only=True)
class TrainingOrder:
    """What every rank of a training gets."""

    stage: Train
    context: Context
    sink: EventSink
    run: RunHandle


def train_on_workers(stage: Train, submission: Submission, sink: EventSink, run: RunHandle) -> Artifact:
    """Train on a Ray Train worker group, going on from the last checkpoint if an earlier attempt left one.

    Checkpoints lie in the store (see checkpoints.py), so that a new driver finds what a killed one left;
    what Ray Train itself writes lies on local scratch and is never needed again.
    A worker or node that is lost restarts the group from its last checkpoint, `max_failures` times.

    Raises:
        SentdistError: what a person must fix, as the worker raised it; not retried.
        Exception: what a worker raised at the last attempt.
    """
    context = submission.context
    runtime = context.runtime
    os.environ.update(controller_environment(len(nodes_of(ray.nodes()))))
    order = TrainingOrder(stage=stage, context=context, sink=sink, run=run)
    resources = {"CPU": runtime.cpus_per_worker} | ({"GPU": runtime.gpus_per_worker} if runtime.gpus_per_worker else {})
    with scratch_folder(Path(tempfile.gettempdir()), "train") as scratch:
        trainer = TorchTrainer(
            partial(_train_rank, order),
            scaling_config=ScalingConfig(num_workers=runtime.workers, use_gpu=runtime.gpus_per_worker > 0, resources_per_worker=resources),
            torch_config=TorchConfig(backend=GPU_BACKEND if runtime.gpus_per_worker else "gloo"),
            run_config=RunConfig(
                name=stage.key,
                storage_path=str(scratch),
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=CONTROLLER_FAILURES),  # see `_fit`
                worker_runtime_env={"env_vars": _worker_environment(runtime)},
                logging_config=LoggingConfig(log_level="ERROR"),
            ),
        )
        with _same_interrupt():
            outcome = _fit(trainer, order)
    if isinstance(outcome, SentdistError):
        raise outcome
    assert isinstance(outcome, Artifact), "rank 0 hands back the artifact"
    forget_running(context.store, stage)
    return outcome


def _fit(trainer: TorchTrainer, order: TrainingOrder) -> object:
    """What rank 0 hands back. Ray Train itself would count the failures of the whole training, see `Attempts`."""
    store, stage = order.context.store, order.stage
    attempts = Attempts(max_failures=order.context.runtime.max_failures, step=newest_step(store, stage) or 0)
    while True:
        try:
            return trainer.fit().return_value  # type: ignore[attr-defined]  # V1's `Result` again
        except TrainingFailedError as error:
            cause = _worker_error(error)
            if not isinstance(error, WorkerGroupError) or isinstance(cause, SentdistError):
                raise cause from error
            attempts = attempts.after_loss(newest_step(store, stage))
            if attempts.are_over:
                raise (attempts.error(f"{stage.kind} {stage.label}", cause) if isinstance(cause, LOST) else cause) from error
            order.sink.post(retry_of(stage, attempts, cause))


@contextmanager
def _same_interrupt() -> Iterator[None]:
    """Ray Train's handler of SIGINT holds the controller: as long as it stands, the controller's processes outlive their training."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _train_rank(order: TrainingOrder) -> Artifact | SentdistError | None:
    """One rank; it sends heartbeats. An error of this rank alone is raised, which ends the others: they wait for it in a collective."""
    with Heartbeats(order.stage, order.sink, worker=f"rank {dist.get_rank()}") as heartbeats, full_gpu_told(order.stage, order.context):
        return _train_to_the_end(order, heartbeats)


def _train_to_the_end(order: TrainingOrder, heartbeats: Heartbeats) -> Artifact | SentdistError | None:
    """From start or checkpoint to the committed artifact (on rank 0). An error for a person is returned, so that it is not retried."""
    started = time.perf_counter()
    found = order.context.store.get(order.stage)
    if found is not None:  # committed by an attempt that was lost before it could say so
        return found
    use_reserved(stage_demand(order.stage, order.context.runtime))
    running = _running_folder(order)
    try:
        session = begin_or_resume(partial(_start_session, order), running, order.stage, order.sink if running.is_first else None)
        _train(session, running, order, heartbeats)
    except SentdistError as error:  # raised on all ranks at the same step
        return error
    with ExitStack() as stack:
        is_first = session.engine.rank == 0
        folder = stack.enter_context(order.context.store.staged() if is_first else _scratch())
        results = session.finish(folder)
        seconds = time.perf_counter() - started
        return commit_training(order.stage, folder, order.context, results=results, seconds=seconds) if is_first else None


def _start_session(order: TrainingOrder) -> TrainSession:
    """A session on every rank, or the error of one of them on every rank:
    one that failed must not leave the others waiting in a collective."""
    session, error = _try_session(order)
    errors: list[SentdistError | None] = [None] * dist.get_world_size()
    dist.all_gather_object(errors, error)
    first = next((found for found in errors if found is not None), None)
    if first is not None:
        raise first
    assert session is not None, "no rank has an error"
    return session


def _try_session(order: TrainingOrder) -> tuple[TrainSession | None, SentdistError | None]:
    try:
        make_engine = engine_of(order.context.runtime, str(ray.train.torch.get_device()))
        bank = bank_of(order.stage, order.context)
        return TrainSession(order.stage, order.context, make_engine=make_engine, bank=bank), None
    except SentdistError as error:
        return None, error


def _running_folder(order: TrainingOrder) -> RunningFolder:
    def exchange(value: object) -> list[object]:
        said: list[object] = [None] * dist.get_world_size()
        dist.all_gather_object(said, value)
        return said

    rank, world_size = dist.get_rank(), dist.get_world_size()
    return RunningFolder(order.context.store, order.stage, rank=rank, world_size=world_size, exchange=exchange)


def _train(session: TrainSession, running: RunningFolder, order: TrainingOrder, heartbeats: Heartbeats) -> None:
    clock = CheckpointClock(order.context.runtime, rank=session.engine.rank, is_leaving=heartbeats.is_leaving)
    with ExitStack() as stack:
        reporter = None
        if session.engine.rank == 0:
            reporter = stack.enter_context(closing(ProgressReporter(order.stage, session, order.sink, order.run, heartbeats)))
        for event in session.events(tell=clock.tell):
            if reporter is not None:
                reporter.on_event(event)
            if clock.is_due(event, told=session.told):
                save_checkpoint(session, running, order.stage, order.sink if running.is_first else None)
                clock.restart()


@contextmanager
def _scratch() -> Iterator[Path]:
    with scratch_folder(Path(tempfile.gettempdir()), "rank") as folder:
        yield folder


def _worker_environment(runtime: Runtime) -> dict[str, str]:
    threads = str(max(1, int(runtime.cpus_per_worker)))
    return {"OMP_NUM_THREADS": threads} | ({} if runtime.gpus_per_worker else {"DS_ACCELERATOR": "cpu"})


def _worker_error(error: TrainingFailedError) -> BaseException:
    """What went wrong itself, out of Ray Train's summary: ranks that only lost their peers come after the one that failed."""
    failures = list(getattr(error, "worker_failures", {}).values())
    for kind in (SentdistError, *LOST):  # a rank that died says nothing; what its peers raise then is only that it is gone
        for failure in failures:
            if isinstance(failure, kind):
                return failure
    return error
