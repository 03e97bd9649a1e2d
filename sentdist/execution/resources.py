"""What a cluster can carry: pure decisions from its nodes and the wanted runtime, before anything is started."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sentdist.errors import ResourceError
from sentdist.plan.runtime import Runtime
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Embed, Evaluate, Tag, Train

# Ray Train's controller answers `ray.train.report` once a health check: at its default of 2 s a dev score would cost up to 2 s.
HEALTH_CHECK_S = 0.2
HEALTH_CHECK_LARGE_S = 2.0
LARGE_CLUSTER_NODES = 16

# What fits was checked before anything started; a group that must wait for another training's workers waits as long as that takes.
WORKER_GROUP_START_S = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Node:
    """What one living node offers."""

    cpus: float
    gpus: float = 0.0
    memory_bytes: float = math.inf


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What the cluster can do with a runtime.

    trainings_at_once: how many trainings fit. limited_by: the resource that runs out first. max_concurrent_trials: how many trials Tune
    keeps going.
    """

    trainings_at_once: int
    limited_by: str
    max_concurrent_trials: int


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What one stage reserves while it is built; a driver of other processes reserves nothing, or it would starve them."""

    num_cpus: float
    num_gpus: float
    drives_worker_group: bool = False


def nodes_of(rows: Iterable[Mapping[str, object]]) -> tuple[Node, ...]:
    """The living nodes in the answer of `ray.nodes()`."""
    nodes = []
    for row in rows:
        resources = row["Resources"]
        if row["Alive"] and isinstance(resources, Mapping):
            memory = float(resources.get("memory", math.inf))
            nodes.append(Node(cpus=float(resources.get("CPU", 0.0)), gpus=float(resources.get("GPU", 0.0)), memory_bytes=memory))
    return tuple(nodes)


def uses_worker_group(runtime: Runtime) -> bool:
    """Whether a training is a Ray Train run.

    The torch engine on one worker needs no process group, so it runs in a plain Ray task: no 6–25 s of start-up, same parameters.
    """
    return runtime.engine == "deepspeed" or runtime.workers > 1


def stage_demand(stage: Stage, runtime: Runtime) -> Demand:
    """What the task that builds a stage reserves."""
    on_gpu = runtime.gpus_per_worker if isinstance(stage, Train | Embed | Evaluate) else 0.0
    if isinstance(stage, Train) and uses_worker_group(runtime):
        return Demand(num_cpus=0.0, num_gpus=0.0, drives_worker_group=True)
    if isinstance(stage, Embed | Tag) and runtime.workers > 1:  # drives Ray Data, whose actors reserve for themselves
        return Demand(num_cpus=0.0, num_gpus=0.0)
    return Demand(num_cpus=runtime.cpus_per_worker, num_gpus=on_gpu)


def capacity(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float = 0.0) -> Capacity:
    """How many trainings of this runtime the cluster can carry at once.

    worker_bytes: what the largest worker takes, by estimate (see worker_memory.py): it bounds how many run at once, and refuses nothing.

    Raises:
        ResourceError: it can never carry one, with the numbers of both sides.
    """
    if runtime.gpus_per_worker > 1 and runtime.gpus_per_worker % 1:
        raise ResourceError(
            where="runtime.gpus_per_worker",
            found=f"{runtime.gpus_per_worker:g}",
            expected="a fraction up to 1, or a whole number (Ray cannot share several GPUs in parts)",
            remedy="Set runtime.gpus_per_worker=1.",
        )
    by_resource = {
        "CPUs": sum(_times(node.cpus, runtime.cpus_per_worker) for node in nodes),
        "GPUs": sum(_times(node.gpus, runtime.gpus_per_worker) for node in nodes) if runtime.gpus_per_worker else math.inf,
    }
    fitting = sum(_workers_on(node, runtime) for node in nodes)
    if fitting < runtime.workers:
        raise _too_much(runtime, nodes, fitting)
    in_memory = sum(_times(node.memory_bytes, worker_bytes) for node in nodes) if worker_bytes else math.inf
    limited_by = min(by_resource, key=lambda name: by_resource[name])
    at_once = fitting // runtime.workers
    if in_memory // runtime.workers < at_once:
        at_once, limited_by = max(1, int(in_memory // runtime.workers)), f"memory: {worker_bytes / 2**30:.1f} GiB a worker"
    return Capacity(
        trainings_at_once=at_once,
        limited_by=limited_by,
        max_concurrent_trials=runtime.max_concurrent_trials or at_once,
    )


def controller_environment(num_nodes: int) -> dict[str, str]:
    """What Ray Train reads from environment variables only, and passes on to its controller."""
    return {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": str(HEALTH_CHECK_S if num_nodes < LARGE_CLUSTER_NODES else HEALTH_CHECK_LARGE_S),
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(WORKER_GROUP_START_S),
        # On one node nobody is left to be warned of its going; the watcher would be one more process for each training.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "1" if num_nodes > 1 else "0",
    }


def _workers_on(node: Node, runtime: Runtime) -> int:
    by_cpus = _times(node.cpus, runtime.cpus_per_worker)
    return int(min(by_cpus, _times(node.gpus, runtime.gpus_per_worker)) if runtime.gpus_per_worker else by_cpus)


def _times(offered: float, wanted: float) -> float:
    """How often `wanted` fits; the small term forgives 0.1 + 0.2."""
    return offered if math.isinf(offered) else math.floor(offered / wanted + 1e-9)


def _too_much(runtime: Runtime, nodes: tuple[Node, ...], fitting: int) -> ResourceError:
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    wanted = [f"{runtime.workers} × {runtime.cpus_per_worker:g} CPUs = {runtime.workers * runtime.cpus_per_worker:g} CPUs"]
    if runtime.gpus_per_worker:
        wanted.append(f"{runtime.workers} × {runtime.gpus_per_worker:g} GPUs = {runtime.workers * runtime.gpus_per_worker:g} GPUs")
    return ResourceError(
        where="runtime",
        found=f"a training of {' and '.join(wanted)}, on {len(nodes)} node(s) with {cpus:g} CPUs and {gpus:g} GPUs in all",
        expected=f"at most {fitting} such worker(s), which is what fits on the nodes",
        remedy=_remedy(runtime, cpus, gpus, fitting),
    )


def _remedy(runtime: Runtime, cpus: float, gpus: float, fitting: int) -> str:
    if runtime.gpus_per_worker and not gpus:
        return "Set runtime.gpus_per_worker=0, or start the cluster with GPUs."
    if fitting:
        return f"Set runtime.workers={fitting}, or add nodes."
    if runtime.cpus_per_worker > 1 and cpus >= runtime.workers:
        return "Set runtime.cpus_per_worker=1, or add nodes."
    return "Ask for fewer workers or less for each, or add nodes."
