"""How each kind of stage is built, and what that reserves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from sentdist.errors import counted
from sentdist.execution.capacity import share_of_a_gpu
from sentdist.execution.cluster.nodes import GPU_TYPE, Node, smallest_gpu, workers_on
from sentdist.files import memory_size
from sentdist.plan.sections import Runtime
from sentdist.plan.stage import Stage

Way = Literal["task", "group", "pool"]


@dataclass(frozen=True, kw_only=True)
class ElasticWidth:
    """How the number of a group's workers follows what the cluster has: it may fall to `fewest`. Every `every_s` seconds the group looks
    whether there is room for more workers, and if so goes on with them from its last checkpoint."""

    fewest: int
    every_s: float


@dataclass(frozen=True, kw_only=True)
class Demand:
    """How a stage is built, and what that reserves: `workers` times so many CPUs and GPUs.

    task: in the process that builds it, which is one worker. group: by a worker group of Ray Train, which takes all its workers at once or
    none. pool: by workers that are taken one by one, see `over_workers`. Whoever drives a group or a pool waits for its workers, so it
    reserves nothing itself. What `stays` builds one stage after another, see `WorkerGroups`.
    change: of a group whose number of workers follows what the cluster has. gpu_type: what Ray calls the GPUs that may be taken.
    is_alone: a task that all workers of a group would do together, such as a training of one worker.
    """

    way: Way
    workers: int
    num_cpus: float
    num_gpus: float
    change: ElasticWidth | None = None
    gpu_type: str | None = None
    is_alone: bool = False

    @property
    def resources(self) -> dict[str, float] | None:
        """What a worker reserves beside CPUs and GPUs, as Ray takes it: a little of a resource that only nodes with such GPUs have."""
        return {f"{GPU_TYPE}{self.gpu_type}": 0.001} if self.gpu_type else None

    @property
    def options(self) -> dict[str, Any]:
        """What a worker reserves, as options of a Ray task or actor."""
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "resources": self.resources}

    def workers_on(self, node: Node) -> int:
        """How many of its workers a node holds."""
        if self.gpu_type not in (None, *node.gpu_types):
            return 0
        return workers_on(node, num_cpus=self.num_cpus, num_gpus=self.num_gpus)

    @property
    def enough(self) -> int:
        """Workers with which it comes to its end; more only make it quicker."""
        if self.way == "pool":
            return 1
        return self.workers if self.change is None else self.change.fewest

    @property
    def stays(self) -> bool:
        """Whether it is built by workers that stay: a group, or a process with a GPU, which must never see another one."""
        return self.way == "group" or (self.way == "task" and self.num_gpus > 0)

    @property
    def builder_cpus(self) -> float:
        """What the process that builds it reserves."""
        return self.num_cpus if self.way == "task" else 0.0

    @property
    def builder_gpus(self) -> float:
        """What the process that builds it reserves."""
        return self.num_gpus if self.way == "task" else 0.0

    @property
    def builder_resources(self) -> dict[str, float] | None:
        """What the process that builds it reserves."""
        return self.resources if self.way == "task" else None


def stage_demand(stage: Stage, runtime: Runtime) -> Demand:
    """How a kind of stage is built, and what it reserves.

    Raises:
        TypeError: a kind of which nothing is known here.
    """
    num_gpus = runtime.gpus_per_worker if stage.uses_gpu else 0.0
    match stage.built_by:
        case None:
            raise TypeError(f"nobody said what the stage {stage.kind} reserves")
        case "group" if uses_worker_group(runtime):
            may_change = runtime.workers_may_change
            change = ElasticWidth(fewest=runtime.fewest_workers, every_s=runtime.checkpoint_every_s) if may_change else None
            return _demand(runtime, "group", runtime.most_workers, num_gpus, change)
        case "pool" if runtime.most_workers > 1:
            return pool_demand(runtime, gpus=num_gpus)
        case "one" | "pool" | "group":
            return replace(_demand(runtime, "task", 1, num_gpus), is_alone=stage.built_by == "group")


def uses_worker_group(runtime: Runtime) -> bool:
    """Whether a training is a Ray Train run.

    The torch engine on one worker needs no process group, so it runs in a plain Ray task: no 6–25 s of start-up, same parameters.
    """
    return runtime.engine == "deepspeed" or runtime.most_workers > 1


def pool_demand(runtime: Runtime, *, gpus: float) -> Demand:
    """A pool of up to `runtime.workers` workers (where that is a range, its upper end), taken one by one. gpus: of each."""
    return _demand(runtime, "pool", runtime.most_workers, gpus)


def _demand(runtime: Runtime, way: Way, workers: int, num_gpus: float, change: ElasticWidth | None = None) -> Demand:
    gpu_type = runtime.gpu_type if num_gpus else None
    return Demand(way=way, workers=workers, num_cpus=runtime.cpus_per_worker, num_gpus=num_gpus, change=change, gpu_type=gpu_type)


def gpus_line(asked: Runtime, runtime: Runtime, nodes: tuple[Node, ...], *, workers_at_once: int, limited_by: str) -> str:
    """Which of the cluster's GPUs are used, which lie idle, and why. asked: the runtime before its devices were decided."""
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
    """Over how many workers something is done that takes them one by one, with `gpus_line`."""
    devices = gpus_line(asked, runtime, nodes, workers_at_once=runtime.most_workers, limited_by="--workers")
    return f"over {counted(runtime.most_workers, 'worker')}, {devices}"


def gpu_memory_note(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float) -> str | None:
    """What to say where by estimate a worker takes more of a GPU's memory than it was to have; None where it has enough."""
    asked, smallest = runtime.gpus_per_worker, smallest_gpu(nodes)
    if not asked or worker_bytes <= min(asked, 1.0) * smallest:
        return None
    share = share_of_a_gpu(runtime, nodes, worker_bytes=worker_bytes)
    takes = f"A worker takes about {memory_size(worker_bytes)} of a GPU by estimate, of which the smallest has {memory_size(smallest)}"
    gets = f": each gets {share:g} of one, not {asked:g}" if share > asked else ""
    return f"{takes}{gets}. A smaller runtime.micro_batch takes less."
