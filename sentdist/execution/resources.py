"""What a cluster can carry: pure decisions from its nodes and the wanted runtime, before anything is started."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from sentdist.errors import ResourceError, counted
from sentdist.gpus import GPUS
from sentdist.plan.runtime import Runtime
from sentdist.plan.stage import Stage
from sentdist.sizes import memory_size

GPU_TYPE = "accelerator_type:"  # how Ray begins the name of the resource that a node with such GPUs has

# Ray Train's controller answers `ray.train.report` once a health check: at its default of 2 s a dev score would cost up to 2 s.
HEALTH_CHECK_S = 0.2
HEALTH_CHECK_LARGE_S = 2.0
LARGE_CLUSTER_NODES = 16

# What fits was checked before anything started; a group that must wait for another training's workers waits as long as that takes.
WORKER_GROUP_START_S = 7 * 24 * 3600
SIZED_AGAIN_S = 60  # a group whose size may change, and that does not get the workers it was to have, looks again how many there are


@dataclass(frozen=True, kw_only=True)
class Node:
    """What one node offers."""

    cpus: float
    gpus: float = 0.0
    memory_bytes: float = math.inf
    gpu_bytes: float = math.inf  # memory of each GPU, where it is known
    old_gpu: str | None = None  # the kind of its GPUs, where that is known and older than Ampere
    gpu_types: tuple[str, ...] = ()  # what Ray calls them; sometimes a family and its member


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What the cluster can do with a runtime.

    trainings_at_once: how many trainings fit. limited_by: the resource that runs out first. max_concurrent_trials: how many trials Tune
    keeps going.
    """

    trainings_at_once: int
    limited_by: str
    max_concurrent_trials: int


Way = Literal["task", "group", "pool"]


@dataclass(frozen=True, kw_only=True)
class ElasticWidth:
    """How a group follows what the cluster has: down to `fewest` workers; every so many seconds it looks whether there is room for more,
    and if so goes on with them from its last checkpoint."""

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
        """What a worker reserves beside CPUs and GPUs, as Ray takes it: a trifle of a resource that only nodes with such GPUs have."""
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


def nodes_of(rows: Iterable[Mapping[str, object]]) -> tuple[Node, ...]:
    """The living nodes in the answer of `ray.nodes()`."""
    return tuple(node_of(row["Resources"]) for row in rows if row["Alive"] and isinstance(row["Resources"], Mapping))


def node_of(resources: Mapping[str, object]) -> Node:
    """A node that offers what Ray's names say: CPU, GPU, memory (bytes), accelerator_type:NAME."""
    known = {name: float(str(resources[name])) for name in ("CPU", "GPU", "memory") if name in resources}
    kinds = [kind for kind in GPUS if f"{GPU_TYPE}{kind}" in resources]
    return Node(
        cpus=known.get("CPU", 0.0),
        gpus=known.get("GPU", 0.0),
        memory_bytes=known.get("memory", math.inf),
        gpu_bytes=max((gib * 2.0**30 for kind in kinds if (gib := GPUS[kind].gib) is not None), default=math.inf),  # A100-80G beside A100
        old_gpu=next((kind for kind in kinds if GPUS[kind].is_old), None),
        gpu_types=tuple(sorted(name.removeprefix(GPU_TYPE) for name in resources if name.startswith(GPU_TYPE))),
    )


def with_devices(runtime: Runtime, nodes: tuple[Node, ...]) -> Runtime:
    """The runtime with its GPUs decided: where nobody said, one for each worker if so many workers fit on nodes with GPUs.

    Raises:
        ResourceError: GPUs are asked for by `device`, and there are none.
    """
    num_gpus, asked = sum(node.gpus for node in nodes), runtime.gpus_asked
    if asked is None:
        fitting = sum(workers_on(node, num_cpus=runtime.cpus_per_worker, num_gpus=1.0) for node in nodes)
        return runtime.with_gpus(1.0 if fitting >= runtime.fewest_workers else 0.0)
    if runtime.device == "cuda" and not num_gpus:
        raise ResourceError(
            where="runtime.device=cuda",
            found=f"a cluster of {len(nodes)} node(s) without GPUs",
            expected="at least one",
            remedy="Start the cluster on nodes with GPUs, or set runtime.device=auto.",
        )
    return runtime.with_gpus(asked)


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


def share_of_a_gpu(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float) -> float:
    """`gpus_per_worker`, or, where by estimate a worker takes more memory than that part of the smallest GPU, what it takes, in tenths.

    worker_bytes: on the GPU (see `gpu_bytes` of worker_memory.py). A part bounds a worker's memory, so too small a part is of no use.
    """
    asked = runtime.gpus_per_worker
    if not 0 < asked < 1:
        return asked
    return min(1.0, max(asked, math.ceil(10 * worker_bytes / smallest_gpu(nodes) - 1e-9) / 10))


def gpu_memory_note(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float) -> str | None:
    """What to say where by estimate a worker takes more of a GPU's memory than it was to have; None where it has enough."""
    asked, smallest = runtime.gpus_per_worker, smallest_gpu(nodes)
    if not asked or worker_bytes <= min(asked, 1.0) * smallest:
        return None
    share = share_of_a_gpu(runtime, nodes, worker_bytes=worker_bytes)
    takes = f"A worker takes about {memory_size(worker_bytes)} of a GPU by estimate, of which the smallest has {memory_size(smallest)}"
    gets = f": each gets {share:g} of one, not {asked:g}" if share > asked else ""
    return f"{takes}{gets}. A smaller runtime.micro_batch takes less."


def smallest_gpu(nodes: tuple[Node, ...]) -> float:
    return min((node.gpu_bytes for node in nodes if node.gpus), default=math.inf)


def old_gpu_of(nodes: tuple[Node, ...]) -> str | None:
    """The kind of a GPU older than Ampere, where there is one."""
    return next((node.old_gpu for node in nodes if node.gpus and node.old_gpu), None)


def uses_worker_group(runtime: Runtime) -> bool:
    """Whether a training is a Ray Train run.

    The torch engine on one worker needs no process group, so it runs in a plain Ray task: no 6–25 s of start-up, same parameters.
    """
    return runtime.engine == "deepspeed" or runtime.most_workers > 1


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


def pool_demand(runtime: Runtime, *, gpus: float) -> Demand:
    """A pool of up to `runtime.workers` workers (where that is a range, its upper end), taken one by one. gpus: of each."""
    return _demand(runtime, "pool", runtime.most_workers, gpus)


def _demand(runtime: Runtime, way: Way, workers: int, num_gpus: float, change: ElasticWidth | None = None) -> Demand:
    gpu_type = runtime.gpu_type if num_gpus else None
    return Demand(way=way, workers=workers, num_cpus=runtime.cpus_per_worker, num_gpus=num_gpus, change=change, gpu_type=gpu_type)


def pools_at_once(*, trainings_at_once: int, workers: int) -> int:
    """How many pools a board drives at once: as many as the cluster holds workers, because one worker is enough to finish a pool.

    A driver reserves nothing, so without a bound every pool of a sweep would start a process that waits. `WorkerGroups` bounds the groups,
    and Ray itself makes those wait whose own process reserves.
    """
    return trainings_at_once * workers


def capacity(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float = 0.0) -> Capacity:
    """How many trainings of this runtime the cluster can carry at once.

    worker_bytes: what the largest worker takes, by estimate (see worker_memory.py): it bounds how many run at once, and refuses nothing.

    Raises:
        ResourceError: it can never carry one, with the numbers of both sides.
    """
    by_resource = {
        "CPUs": sum(_times(node.cpus, runtime.cpus_per_worker) for node in nodes),
        "GPUs": sum(_shares(node.gpus, runtime.gpus_per_worker) for node in nodes) if runtime.gpus_per_worker else math.inf,
    }
    by_node = [workers_on(node, num_cpus=runtime.cpus_per_worker, num_gpus=runtime.gpus_per_worker) for node in nodes]
    fitting = sum(by_node)
    if fitting < runtime.fewest_workers:
        raise _too_much(runtime, nodes, fitting)
    in_memory = (
        sum(min(most, _times(node.memory_bytes, worker_bytes)) for node, most in zip(nodes, by_node, strict=True))
        if worker_bytes
        else math.inf
    )
    limited_by = min(by_resource, key=lambda name: by_resource[name])
    width = min(runtime.most_workers, fitting)
    at_once = fitting // width
    if in_memory // width < at_once:
        at_once, limited_by = max(1, int(in_memory // width)), f"memory: {memory_size(worker_bytes)} a worker"
    return Capacity(
        trainings_at_once=at_once,
        limited_by=limited_by,
        max_concurrent_trials=runtime.max_concurrent_trials or at_once,
    )


def workers_on(node: Node, *, num_cpus: float, num_gpus: float) -> int:
    """How many workers of that size a node holds."""
    by_cpus = _times(node.cpus, num_cpus)
    return int(min(by_cpus, _shares(node.gpus, num_gpus)) if num_gpus else by_cpus)


def _shares(gpus: float, num_gpus: float) -> float:
    """How many requests of one size a node's GPUs serve. Ray takes a part from a single GPU, so 0.6 fits into four GPUs four times.
    Of GPUs that are partly in use only the sum is known: what is left beyond whole GPUs counts as the rest of one."""
    if num_gpus >= 1 or math.isinf(gpus):
        return _times(gpus, num_gpus)
    whole = math.floor(gpus + 1e-9)
    return whole * _times(1.0, num_gpus) + _times(max(0.0, gpus - whole), num_gpus)


def controller_environment(num_nodes: int, *, change: ElasticWidth | None = None) -> dict[str, str]:
    """What Ray Train reads from environment variables only, and passes on to its controller."""
    starts_within_s = SIZED_AGAIN_S if change else WORKER_GROUP_START_S
    return {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": str(HEALTH_CHECK_S if num_nodes < LARGE_CLUSTER_NODES else HEALTH_CHECK_LARGE_S),
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(starts_within_s),
        # On one node nobody is left to be warned of its going; the watcher would be one more process for each training.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "1" if num_nodes > 1 else "0",
    }


def _times(offered: float, wanted: float) -> float:
    """How often `wanted` fits; the small term forgives 0.1 + 0.2."""
    return offered if math.isinf(offered) else math.floor(offered / wanted + 1e-9)


def _too_much(runtime: Runtime, nodes: tuple[Node, ...], fitting: int) -> ResourceError:
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    workers = runtime.fewest_workers
    wanted = [f"{workers} × {runtime.cpus_per_worker:g} CPUs = {workers * runtime.cpus_per_worker:g} CPUs"]
    if runtime.gpus_per_worker:
        wanted.append(f"{workers} × {runtime.gpus_per_worker:g} GPUs = {workers * runtime.gpus_per_worker:g} GPUs")
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
    if runtime.cpus_per_worker > 1 and cpus >= runtime.fewest_workers:
        return "Set runtime.cpus_per_worker=1, or add nodes."
    return "Ask for fewer workers or less for each, or add nodes."
