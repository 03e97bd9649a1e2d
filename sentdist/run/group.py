"""Run a group of workers in Ray Train V2, which stays and builds stage after stage as the board orders."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import ray
from ray.train.torch import TorchConfig
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import ControllerError, PreemptionError, TrainingFailedError, WorkerGroupError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from sentdist.errors import SentdistError
from sentdist.learning.freed_memory import allocator_environment
from sentdist.learning.gather import GPU_BACKEND
from sentdist.run.connection import GONE, HostTakenAwayError, cause_of
from sentdist.run.losses import GroupLostError
from sentdist.run.orders import build_orders
from sentdist.run.resources import Demand, ElasticWidth
from sentdist.run.submissions import GroupMember
from sentdist.store.local_storage import scratch_folder

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
            partial(build_orders, member),
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
