"""Workers that stay, as a run of Ray Train V2: they have its process group and its fault model, and build what the board orders."""

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
import torch
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import ControllerError, PreemptionError, TrainingFailedError, WorkerGroupError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from sentdist.errors import SentdistError
from sentdist.execution.board.submissions import EventSink, GroupMember, Submission
from sentdist.execution.board.watchdog import GroupLostError, may_be_a_lost_peer
from sentdist.execution.board.worker_groups import Order
from sentdist.execution.cluster.connection import GONE, HostTakenAwayError, cause_of
from sentdist.execution.cluster.nodes import nodes_of
from sentdist.execution.demand import Demand, ElasticWidth, stage_demand
from sentdist.execution.parallel.shards import build_over_ranks, worker_body
from sentdist.execution.training.rank import train_rank
from sentdist.learning.device_bank import bank_stays
from sentdist.learning.freed_memory import allocator_environment, give_back_freed_memory, give_back_gpu_memory, keep_gpu_memory_whole
from sentdist.learning.gather import GPU_BACKEND, held_group
from sentdist.machine import collect_rarely, pass_over_libraries
from sentdist.plan.stages import Bank, Rung, Targets, Train
from sentdist.stages.context import Context, inputs_watched
from sentdist.stages.gpu_memory import explain_full_gpu
from sentdist.stages.sharded import Sharded
from sentdist.stages.train_setup import ranks_here
from sentdist.store.local_storage import scratch_folder
from sentdist.store.store import Artifact
from sentdist.tracking.tracker import NullRun

# `ray.train` gives out these very classes at run time, but a type checker sees there those of Train V1.


# Ray Train's controller answers `ray.train.report` once a health check: at its default of 2 s a dev score would cost up to 2 s.
HEALTH_CHECK_S = 0.2
HEALTH_CHECK_LARGE_S = 2.0
LARGE_CLUSTER_NODES = 16

# What fits was checked before anything started; a group that must wait for another training's workers waits as long as that takes.
WORKER_GROUP_START_S = 7 * 24 * 3600
SIZED_AGAIN_S = 60  # a group whose size may change, and that does not get the workers it was to have, looks again how many there are

# Ray's own default is no limit: a group that cannot start would be tried forever. One whose size may change is to be tried again.
CONTROLLER_FAILURES = 3


def run_worker_group(member: GroupMember) -> None:
    """Start the workers and wait until they leave; this process reserves nothing.

    A group that is lost is not started again here: the board knows what it was building, and counts its losses.
    Checkpoints lie in the store (see checkpoints.py); what Ray Train itself writes lies on local scratch and is never needed again.

    Raises:
        GroupLostError: a worker, the controller or a host is gone, or a worker raised something, be it while the group was set up.
        TrainingFailedError: Ray Train itself could not start or hold the group.
    """
    demand = member.demand
    os.environ.update(controller_environment(len(nodes_of(ray.nodes())), change=demand.change))
    with scratch_folder(Path(tempfile.gettempdir()), "train") as scratch:
        trainer = TorchTrainer(
            partial(_work, member),
            scaling_config=_scaling(demand),
            torch_config=GpuConfig(backend=GPU_BACKEND) if demand.num_gpus else TorchConfig(backend="gloo"),
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
    """What Ray Train reads from environment variables only, and passes on to its controller."""
    starts_within_s = SIZED_AGAIN_S if change else WORKER_GROUP_START_S
    return {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": str(HEALTH_CHECK_S if num_nodes < LARGE_CLUSTER_NODES else HEALTH_CHECK_LARGE_S),
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(starts_within_s),
        # On one node nobody is left to be warned of its going; the watcher would be one more process for each training.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "1" if num_nodes > 1 else "0",
    }


class _GpuBackend(_TorchBackend):
    """Asks each worker first whether its torch can use its GPU: where it cannot, the process group ends in words of NCCL."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_check_gpu)
        super().on_start(worker_group, backend_config)


class GpuConfig(TorchConfig):
    """How the workers of a group with GPUs find each other."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        return _GpuBackend


def _check_gpu() -> None:
    from sentdist.execution.reserved import check_gpu

    check_gpu()


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
    """One worker. It imports here what would cost the process that only waits for it seconds and half a gigabyte."""
    collect_rarely()

    build_orders(member)


@contextmanager
def _same_interrupt() -> Iterator[None]:
    """Ray Train's handler of SIGINT holds the controller: as long as it stands, the controller's processes outlive their training."""
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
    failures = [_cause(failure) for failure in getattr(error, "worker_failures", {}).values()]
    for kind in (SentdistError, GONE):  # a rank that died says nothing; what its peers raise then is only that it is gone
        for failure in failures:
            if isinstance(failure, kind):
                return failure
    return error


def _cause(failure: BaseException) -> BaseException:
    return failure.health_check_failure if isinstance(failure, WorkerHealthCheckFailedError) else failure


TRIES, PAUSE_S = 60, 2.0  # how often a question is put to a board that is out of reach; then the group counts as lost
OTHERS_TELL_S = 60.0  # after an error that all workers should have met, the first one tells the board of it within so long


def build_orders(member: GroupMember) -> None:
    """Build what the board orders until it says that the group shall leave, or is gone itself.

    Raises:
        Exception: what a training of several workers met that is none of ours, such as a peer that is gone: the group is lost with it.
        SentdistError: what a worker met that is not the first, and the first one does not tell of: it waits for this one.
        ActorUnavailableError: the board stays out of reach: the group is lost, too.
    """
    is_first = ranks_here().is_first
    number, known_modules, met = 0, 0, None
    board, device = member.sink.board, _device(member.demand)
    with held_group(), bank_stays(), _until_the_board_is_gone():
        while (order := _next_order(board, member.name, number, met, is_first=is_first, device=device)) is not None:
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
    """Called on the first worker of a group: make the shards of a stage together with the other workers."""
    sink.call_group()
    artifact = _build_shards(stage, submission.context, sink)
    assert artifact is not None, "the first worker commits"
    return artifact


def _build_shards(stage: Sharded, context: Context, sink: EventSink) -> Artifact | None:
    return build_over_ranks(stage, context, ranks_here(), make_body=partial(worker_body, stage, context), sink=sink)


def _build(member: GroupMember, order: Order, sink: EventSink) -> Artifact | Exception:
    """What the first worker answers to an order: an artifact or an error. An error that may only mean that another worker is gone is
    raised instead."""
    try:
        return member.body(order.stage, order.submission, sink)
    except Exception as error:
        if may_be_a_lost_peer(error, stage_demand(order.stage, order.submission.context.runtime)):
            raise
        return error


def _next_order(board: Any, name: str, after: int, met: SentdistError | None, *, is_first: bool, device: str) -> Order | None:
    """What the board orders next; None: the group shall leave.

    met: the error that ended the last order on this worker. If the first worker met it too, it tells the board, which sends the group away.
    If it does not, it waits for this worker in a collective, up to half an hour: so this one raises its error after OTHERS_TELL_S.
    """
    within_s = None if met is None else OTHERS_TELL_S
    try:
        order: Order | None = _answer(board.next_order, name, after, within_s=within_s, is_first=is_first, device=device)
    except GetTimeoutError:
        assert met is not None, "only after an error there is an end to waiting"
        raise met from None
    return order


def _follow(order: Order, sink: EventSink) -> SentdistError | None:
    """What the other workers do for an order that the first one has begun. An error that a person must fix is met by all workers at the
    same step; the first one tells the board, here it is returned.

    Raises:
        SentdistError: what this one alone met, as a GPU that is full or an input that was changed under it; the group is lost with it.
    """
    stage, context = order.stage, order.submission.context
    with explain_full_gpu(stage, context), inputs_watched():
        try:
            match stage:
                case Train() | Rung():
                    train_rank(stage, context, sink, NullRun())
                case Bank() | Targets():
                    _build_shards(stage, context, sink)
                case _:
                    raise TypeError(f"{stage.kind} is built by one process")
        except SentdistError as error:
            return error
    return None


def _device(demand: Demand) -> str:
    """What kind of GPU this process computes on; "": a CPU, which are taken for equally fast."""
    if demand.num_gpus:
        keep_gpu_memory_whole()  # before torch is asked anything of the GPU
    return torch.cuda.get_device_name() if demand.num_gpus and torch.cuda.is_available() else ""


@contextmanager
def _until_the_board_is_gone() -> Iterator[None]:
    """Leave quietly when the board has died: whoever needs the work asks another board."""
    try:
        yield
    except ActorUnavailableError:
        raise
    except RayActorError:
        return


def _answer(question: Any, *args: object, within_s: float | None = None, **options: object) -> Any:
    """The board's answer, asked for again when the connection breaks: questions are numbered, so the board may be asked twice.

    Raises:
        GetTimeoutError: there is none within so many seconds; None waits forever.
    """
    for _ in range(TRIES - 1):
        try:
            return ray.get(question.remote(*args, **options), timeout=within_s)
        except ActorUnavailableError:
            time.sleep(PAUSE_S)
    return ray.get(question.remote(*args, **options), timeout=within_s)


def _let_go() -> None:
    """Give back what a stage leaves behind: nothing of it may be held while the next one runs, or while the group waits."""
    gc.collect()
    gc.collect()  # an engine of DeepSpeed takes its hooks out as it goes, and only then nothing holds it
    give_back_freed_memory()
    give_back_gpu_memory()
