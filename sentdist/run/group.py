"""Run a group of workers in Ray Train V2, which stays and builds stage after stage as the board orders."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError
from ray.train.torch import TorchConfig
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import ControllerError, PreemptionError, TrainingFailedError, WorkerGroupError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from sentdist.errors import SentdistError
from sentdist.learning.device_bank import bank_stays
from sentdist.learning.freed_memory import allocator_environment, give_back_freed_memory, give_back_gpu_memory
from sentdist.learning.gather import GPU_BACKEND, held_group
from sentdist.machine import collect_rarely, pass_over_libraries
from sentdist.recipe.stages import Bank, Rung, Targets, Train
from sentdist.run.cluster.connection import GONE, HostTakenAwayError, cause_of
from sentdist.run.losses import GroupLostError, may_be_a_lost_peer
from sentdist.run.rank import build_over_ranks, train_rank, worker_body
from sentdist.run.resources import Demand, ElasticWidth, stage_demand
from sentdist.run.submissions import EventSink, GroupMember, Submission
from sentdist.run.workers import Order
from sentdist.stages.context import Context, inputs_watched
from sentdist.stages.fit import explain_full_gpu
from sentdist.stages.sharded import Sharded
from sentdist.stages.train_setup import ranks_here
from sentdist.store.local_storage import scratch_folder
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import Run as TrackedRun

# Imported from `ray.train.v2`: `ray.train` exports the same classes at run time, but a type checker sees those of Train V1.

# Ray Train's controller answers `ray.train.report` once a health check: at its default of 2 s a dev score would cost up to 2 s.
HEALTH_CHECK_S = 0.2
HEALTH_CHECK_LARGE_S = 2.0
LARGE_CLUSTER_NODES = 16

# `capacity` has checked that the group fits; it waits for another training's workers without a limit in practice.
WORKER_GROUP_START_S = 7 * 24 * 3600
SIZED_AGAIN_S = 60  # after this time an elastic group without enough workers counts again how many it can get

# Ray's default is no limit: a group that cannot start would be tried forever. Only an elastic group is tried without limit.
CONTROLLER_FAILURES = 3


def run_worker_group(member: GroupMember) -> None:
    """Start the workers and wait until they leave; this process reserves nothing.

    A lost group is not restarted here: the board knows what it was building, and counts its losses.
    Checkpoints are in the store (see checkpoints.py); Ray Train's own files are on local scratch and not needed later.

    Raises:
        GroupLostError: a worker, the controller or a host is gone, or a worker raised an error, also during set-up.
        TrainingFailedError: Ray Train could not start or hold the group.
    """
    demand = member.demand
    os.environ.update(controller_environment(sum(node["Alive"] for node in ray.nodes()), change=demand.change))
    with scratch_folder(Path(tempfile.gettempdir()), "train") as scratch:
        trainer = TorchTrainer(
            partial(_work, member),
            scaling_config=_scaling(demand),
            torch_config=TorchConfig(backend=GPU_BACKEND if demand.num_gpus else "gloo"),
            run_config=RunConfig(
                name=member.name,
                storage_path=str(scratch),
                failure_config=FailureConfig(
                    max_failures=0,
                    max_preemption_failures=0,  # Ray's default is no limit here, too
                    controller_failure_limit=-1 if demand.change else CONTROLLER_FAILURES,
                ),
                worker_runtime_env={"env_vars": _worker_environment(demand)},
                logging_config=LoggingConfig(log_level="ERROR"),
            ),
        )
        with _same_interrupt():
            try:
                trainer.fit()
            except WorkerGroupError as error:
                raise GroupLostError(_worker_error(error)) from error
            except PreemptionError as error:
                raise GroupLostError(HostTakenAwayError(str(error))) from error
            except ControllerError as error:
                cause = cause_of(error.controller_failure)
                if cause is error.controller_failure:
                    raise
                raise GroupLostError(cause) from error
            except GONE as error:  # the controller, and its workers with it
                raise GroupLostError(error) from error


def controller_environment(num_nodes: int, *, change: ElasticWidth | None = None) -> dict[str, str]:
    """Return settings that Ray Train reads from environment variables only, and passes on to its controller."""
    starts_within_s = SIZED_AGAIN_S if change else WORKER_GROUP_START_S
    return {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": str(HEALTH_CHECK_S if num_nodes < LARGE_CLUSTER_NODES else HEALTH_CHECK_LARGE_S),
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(starts_within_s),
        # On one node no other host remains to be warned; the watcher would be one more process for each training.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "1" if num_nodes > 1 else "0",
    }


def _scaling(demand: Demand) -> ScalingConfig:
    resources = {"CPU": demand.num_cpus} | ({"GPU": demand.num_gpus} if demand.num_gpus else {}) | (demand.resources or {})
    if demand.change is None:
        return ScalingConfig(num_workers=demand.workers, use_gpu=demand.num_gpus > 0, resources_per_worker=resources)
    return ScalingConfig(
        num_workers=(demand.change.fewest, demand.workers),
        use_gpu=demand.num_gpus > 0,
        resources_per_worker=resources,
        elastic_resize_monitor_interval_s=demand.change.every_s,
    )


def _work(member: GroupMember) -> None:
    """Body of one worker."""
    collect_rarely()
    build_orders(member)


@contextmanager
def _same_interrupt() -> Iterator[None]:
    """Restore the handler of SIGINT: Ray Train's holds the controller, whose processes would outlive their training."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _worker_environment(demand: Demand) -> dict[str, str]:
    threads = str(max(1, int(demand.num_cpus)))
    # Ray Train asks torch of the GPU before our code runs there.
    return {"OMP_NUM_THREADS": threads} | (allocator_environment(os.environ) if demand.num_gpus else {"DS_ACCELERATOR": "cpu"})


def _worker_error(error: TrainingFailedError) -> BaseException:
    """The root cause in Ray Train's summary: ranks that only lost their peers come after the one that failed."""
    failures = [getattr(failure, "health_check_failure", failure) for failure in getattr(error, "worker_failures", {}).values()]
    for kind in (SentdistError, GONE):  # a rank that died raises nothing; its peers then only raise that it is gone
        for failure in failures:
            if isinstance(failure, kind):
                return failure
    return error


TRIES, PAUSE_S = 60, 2.0  # calls to an unreachable board, and seconds between them; then the group counts as lost
OTHERS_TELL_S = 60.0  # time within which the first worker reports an error that all workers should have met


def build_orders(member: GroupMember) -> None:
    """Build what the board orders until it sends the group away or has died.

    Raises:
        Exception: not a SentdistError, for example a lost peer: the group is lost.
        SentdistError: a worker other than the first met it alone; the first one waits for this worker.
        ActorUnavailableError: the board stays unreachable: the group is lost.
    """
    is_first = ranks_here().is_first
    number, known_modules, met = 0, 0, None
    board = member.sink.board
    with held_group(), bank_stays(), _until_the_board_is_gone():
        while (order := _next_order(board, member.name, number, met, is_first=is_first)) is not None:
            number = order.number
            sink = replace(member.sink, order=(member.name, number))
            if is_first:
                answer = _build(member, order, sink)
                _answer(board.finish, member.name, number, answer)
            else:
                met = _follow(order, sink)
            _let_go()
            known_modules = pass_over_libraries(known_modules)


def shards_in_group(stage: Sharded, submission: Submission, sink: EventSink) -> Artifact:
    """Make the shards of a stage with all workers of a group; called on the first one."""
    sink.call_group()
    artifact = _build_shards(stage, submission.context)
    assert artifact is not None, "the first worker commits"
    return artifact


def _build_shards(stage: Sharded, context: Context) -> Artifact | None:
    return build_over_ranks(stage, context, ranks_here(), make_body=partial(worker_body, stage, context))


def _build(member: GroupMember, order: Order, sink: EventSink) -> Artifact | Exception:
    """The first worker's answer to an order: an artifact or an error. An error that may mean a lost worker is raised instead."""
    try:
        return member.body(order.stage, order.submission, sink)
    except Exception as error:
        if may_be_a_lost_peer(error, stage_demand(order.stage, order.submission.context.runtime)):
            raise
        return error


def _next_order(board: Any, name: str, after: int, met: SentdistError | None, *, is_first: bool) -> Order | None:
    """The board's next order; None if the group must leave.

    met: the error that ended the last order on this worker. If the first worker met it too, it reports it, and the board sends the group
    away. Otherwise it waits for this worker in a collective, up to half an hour: so this one raises its error after OTHERS_TELL_S.
    """
    within_s = None if met is None else OTHERS_TELL_S
    try:
        order: Order | None = _answer(board.next_order, name, after, within_s=within_s, is_first=is_first)
    except GetTimeoutError:
        assert met is not None, "only a wait after an error has a timeout"
        raise met from None
    return order


def _follow(order: Order, sink: EventSink) -> SentdistError | None:
    """Do a worker's part of an order that the first one has begun. An error that the user must fix is met by all workers at the same
    step; the first one reports it to the board, here it is returned.

    Raises:
        SentdistError: this worker alone met it, for example a full GPU or a changed input; the group is lost.
    """
    stage, context = order.stage, order.submission.context
    with explain_full_gpu(stage, context), inputs_watched():
        try:
            match stage:
                case Train() | Rung():
                    train_rank(stage, context, sink, TrackedRun())
                case Bank() | Targets():
                    _build_shards(stage, context)
                case _:
                    raise TypeError(f"{stage.kind} is built by one process")
        except SentdistError as error:
            return error
    return None


@contextmanager
def _until_the_board_is_gone() -> Iterator[None]:
    """Leave quietly when the board has died: jobs that need the work start another board."""
    try:
        yield
    except ActorUnavailableError:
        raise
    except RayActorError:
        return


def _answer(question: Any, *args: object, within_s: float | None = None, **options: object) -> Any:
    """The board's answer; the call is repeated when the connection breaks, which numbered calls allow.

    Raises:
        GetTimeoutError: no answer within `within_s` seconds; None waits forever.
    """
    for _ in range(TRIES - 1):
        try:
            return ray.get(question.remote(*args, **options), timeout=within_s)
        except ActorUnavailableError:
            time.sleep(PAUSE_S)
    return ray.get(question.remote(*args, **options), timeout=within_s)


def _let_go() -> None:
    """Free what a stage leaves, before the next one runs and while the group waits."""
    gc.collect()
    gc.collect()  # an engine of DeepSpeed removes its hooks in the first pass; only the second can free it
    give_back_freed_memory()
    give_back_gpu_memory()
