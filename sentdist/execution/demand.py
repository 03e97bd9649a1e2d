"""How each kind of stage is built, and what that reserves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from sentdist.execution.cluster.nodes import GPU_TYPE, Node, workers_on
from sentdist.plan.runtime import Runtime
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
