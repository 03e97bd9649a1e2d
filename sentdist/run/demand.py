"""Decide how each kind of stage is built and which CPUs and GPUs that reserves; describe the GPUs in use."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from sentdist.errors import counted
from sentdist.files import memory_size
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage
from sentdist.run.capacity import share_of_a_gpu
from sentdist.run.cluster.nodes import GPU_TYPE, Node, smallest_gpu, workers_on

Way = Literal["task", "group"]


@dataclass(frozen=True, kw_only=True)
class ElasticWidth:
    """Limits of a worker group whose size follows the cluster."""

    fewest: int  # smallest number of workers
    every_s: float  # seconds between two checks for room for more workers, with which the group goes on from its last checkpoint


@dataclass(frozen=True, kw_only=True)
class Demand:
    """How a stage is built, and what that reserves.

    way: "task": in the process that builds it, as one worker; "group": by a worker group of Ray Train, which takes all its workers at
    once or none, and whose driver reserves nothing.
    """

    way: Way
    workers: int
    num_cpus: float  # CPUs of each worker
    num_gpus: float  # GPUs of each worker
    change: ElasticWidth | None = None  # limits of a group whose size follows the cluster
    gpu_type: str | None = None  # Ray's name of the only GPUs to use
    is_alone: bool = False  # True for a task that would be a group with more workers, for example a training on one worker

    @property
    def resources(self) -> dict[str, float] | None:
        """Ray resources of a worker besides CPUs and GPUs: a little of a resource that only nodes with GPUs of `gpu_type` have."""
        return {f"{GPU_TYPE}{self.gpu_type}": 0.001} if self.gpu_type else None

    @property
    def options(self) -> dict[str, Any]:
        """Resources of a worker as options of a Ray task or actor."""
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "resources": self.resources}

    def workers_on(self, node: Node) -> int:
        """Return how many of its workers fit on a node."""
        if self.gpu_type not in (None, *node.gpu_types):
            return 0
        return workers_on(node, num_cpus=self.num_cpus, num_gpus=self.num_gpus)

    @property
    def stays(self) -> bool:
        """True if its workers stay for further stages (see `WorkerGroups`): a group, or a process with a GPU, bound to that GPU."""
        return self.way == "group" or self.num_gpus > 0


def stage_demand(stage: Stage, runtime: Runtime) -> Demand:
    """Return how a stage is built and what it reserves.

    Raises:
        TypeError: the kind of stage does not define `built_by`.
    """
    match stage.built_by:
        case None:
            raise TypeError(f"{stage.kind}.built_by is not implemented")
        # One group trains, embeds banks and makes targets, so that all share its start-up; hence the same demand, GPUs included.
        case "group" | "pool" if runtime.most_workers > 1 or (stage.built_by == "group" and runtime.engine == "deepspeed"):
            may_change = runtime.workers_may_change
            change = ElasticWidth(fewest=runtime.fewest_workers, every_s=runtime.checkpoint_every_s) if may_change else None
            return _demand(runtime, "group", runtime.most_workers, runtime.gpus_per_worker, change)
        case "one" | "pool" | "group":
            num_gpus = runtime.gpus_per_worker if stage.uses_gpu else 0.0
            return replace(_demand(runtime, "task", 1, num_gpus), is_alone=stage.built_by == "group")


def pool_demand(runtime: Runtime, *, gpus: float) -> Demand:
    """Return the demand of up to `runtime.workers` separate workers (upper end of a range). gpus: of each worker."""
    return _demand(runtime, "task", runtime.most_workers, gpus)


def _demand(runtime: Runtime, way: Way, workers: int, num_gpus: float, change: ElasticWidth | None = None) -> Demand:
    gpu_type = runtime.gpu_type if num_gpus else None
    return Demand(way=way, workers=workers, num_cpus=runtime.cpus_per_worker, num_gpus=num_gpus, change=change, gpu_type=gpu_type)


def gpus_line(asked: Runtime, runtime: Runtime, nodes: tuple[Node, ...], *, workers_at_once: int, limited_by: str) -> str:
    """Return a phrase on used and idle GPUs of the cluster, with the reason. asked: the runtime before its devices were decided."""
    num_gpus = int(sum(node.gpus for node in nodes))
    if not num_gpus:
        return "on CPUs"
    if not runtime.gpus_per_worker:
        by_hand = "runtime.device=cpu" if asked.device == "cpu" else "runtime.gpus_per_worker=0"
        wants = f"{asked.fewest_workers} workers with a GPU and {asked.cpus_per_worker:g} CPU(s) each do not fit"
        return f"on CPUs; idle: {num_gpus} GPU(s) ({wants if asked.gpus_asked is None else by_hand})"
    each = runtime.gpus_per_worker
    used = min(num_gpus, math.ceil(workers_at_once * min(each, 1.0) - 1e-9))
    why = f"bound by {limited_by}" if each <= 1 else f"a worker computes on one of its {each:g}: set runtime.gpus_per_worker=1"
    idle = f"; idle: {num_gpus - used} ({why})" if used < num_gpus else ""
    return f"on {used} GPU(s){idle}"


def workers_line(asked: Runtime, runtime: Runtime, nodes: tuple[Node, ...]) -> str:
    """Return a phrase on the workers of a pool, with `gpus_line`."""
    devices = gpus_line(asked, runtime, nodes, workers_at_once=runtime.most_workers, limited_by="--workers")
    return f"over {counted(runtime.most_workers, 'worker')}, {devices}"


def gpu_memory_note(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float) -> str | None:
    """Return a note if a worker needs more GPU memory by estimate than its share; None if the share is enough."""
    asked, smallest = runtime.gpus_per_worker, smallest_gpu(nodes)
    if not asked or worker_bytes <= min(asked, 1.0) * smallest:
        return None
    share = share_of_a_gpu(runtime, nodes, worker_bytes=worker_bytes)
    takes = f"A worker takes about {memory_size(worker_bytes)} of GPU memory by estimate; the smallest GPU has {memory_size(smallest)}"
    gets = f": each gets {share:g} of one, not {asked:g}" if share > asked else ""
    return f"{takes}{gets}. A smaller runtime.micro_batch takes less."
