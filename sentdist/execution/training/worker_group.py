"""Workers that stay, as a run of Ray Train V2: they have its process group and its fault model, and build what the board orders."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray

# `ray.train` gives out these very classes at run time, but a type checker sees there those of Train V1.
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import ControllerError, PreemptionError, TrainingFailedError, WorkerGroupError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from sentdist.errors import SentdistError
from sentdist.execution.board.attempts import GroupLostError
from sentdist.execution.board.event_sink import GroupMember
from sentdist.execution.cluster.nodes import nodes_of
from sentdist.execution.cluster.ray_errors import GONE, HostTakenAwayError, cause_of
from sentdist.execution.demand import Demand, ElasticWidth
from sentdist.gc_thresholds import collect_rarely
from sentdist.learning.freed_memory import allocator_environment
from sentdist.learning.gather import GPU_BACKEND
from sentdist.store.scratch import scratch_folder

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
    from sentdist.execution.training.member import build_orders

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
