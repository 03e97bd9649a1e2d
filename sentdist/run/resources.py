"""Decide what each stage reserves and on which devices; limit workers to it; compute how many trainings run at once."""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import ray

from sentdist.errors import ResourceError, counted
from sentdist.files import memory_size
from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.machine import OLD_GPUS
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage
from sentdist.run.address import HEAD_RESOURCE
from sentdist.stages.fit import why_unusable

GPU_TYPE = "accelerator_type:"  # prefix of Ray's resource for nodes with GPUs of a type


@dataclass(frozen=True, kw_only=True)
class Node:
    """Resources of one node."""

    cpus: float
    gpus: float = 0.0
    memory_bytes: float = math.inf
    old_gpu: str | None = None  # type of its GPUs if known and older than Ampere
    gpu_types: tuple[str, ...] = ()  # Ray's names; sometimes a family and its member

    def num_workers(self, *, num_cpus: float, num_gpus: float) -> int:
        """Return how many workers of this size fit."""
        by_cpus = how_often(self.cpus, num_cpus)
        return int(min(by_cpus, gpu_shares(self.gpus, num_gpus)) if num_gpus else by_cpus)


def node_of(resources: Mapping[str, object]) -> Node:
    """Return the node with these resources by Ray's names: CPU, GPU, memory (bytes), accelerator_type:NAME."""
    known = {name: float(str(resources[name])) for name in ("CPU", "GPU", "memory") if name in resources}
    return Node(
        cpus=known.get("CPU", 0.0),
        gpus=known.get("GPU", 0.0),
        memory_bytes=known.get("memory", math.inf),
        old_gpu=next((kind for kind in OLD_GPUS if f"{GPU_TYPE}{kind}" in resources), None),
        gpu_types=tuple(sorted(name.removeprefix(GPU_TYPE) for name in resources if name.startswith(GPU_TYPE))),
    )


def gpu_shares(gpus: float, num_gpus: float) -> float:
    """Return how many requests of one size fit on a node's GPUs. Ray takes a fraction from one GPU, so 0.6 fits on four GPUs four times.

    Only the sum of partly used GPUs is known: the fraction beyond whole GPUs counts as the rest of one.
    """
    if num_gpus >= 1:
        return how_often(gpus, num_gpus)
    whole = math.floor(gpus + 1e-9)
    return whole * how_often(1.0, num_gpus) + how_often(max(0.0, gpus - whole), num_gpus)


def how_often(offered: float, wanted: float) -> float:
    """Return how often `wanted` fits; the small term allows for rounding, as in 0.1 + 0.2."""
    return offered if math.isinf(offered) else math.floor(offered / wanted + 1e-9)


def old_gpu_of(nodes: tuple[Node, ...]) -> str | None:
    """Return the type of a GPU older than Ampere, if there is one."""
    return next((node.old_gpu for node in nodes if node.gpus and node.old_gpu), None)


GROWS_TO = "SENTDIST_GROWS_TO"


@dataclass(frozen=True, kw_only=True)
class ClusterNodes:
    """The nodes of a cluster. living: present nodes. to_come: nodes that an autoscaler may add."""

    living: tuple[Node, ...]
    to_come: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.living + self.to_come

    @property
    def line(self) -> str | None:
        """Numbers of present and future nodes, as a sentence; None if none is to come."""
        if not self.to_come:
            return None
        there = f"{counted(len(self.living), 'node')} of {len(self.nodes)} {'is' if len(self.living) == 1 else 'are'} there"
        return f"{there}; the autoscaler adds the others when work waits for them."


def cluster_growth(environment: Mapping[str, str] = os.environ) -> ClusterNodes:
    """Return the nodes of the connected cluster, with those that an autoscaler may add by the variable SENTDIST_GROWS_TO.

    Raises:
        ResourceError: the variable is not a list such as `[{"nodes": 4, "CPU": 8, "GPU": 1}]`.
    """
    rows = [row for row in ray.nodes() if row["Alive"]]
    living = tuple(node_of(row["Resources"] or {}) for row in rows)
    workers = [node for node, row in zip(living, rows, strict=True) if HEAD_RESOURCE not in (row["Resources"] or {})]
    return ClusterNodes(living=living, to_come=nodes_to_come(workers, environment.get(GROWS_TO) or "[]"))


def nodes_to_come(living: Iterable[Node], groups: str) -> tuple[Node, ...]:
    """Return the nodes of the groups in a JSON list that do not live yet; a living node counts for the first group of its size.

    Args:
        living: living nodes without the head, which is in no group.
    """
    try:
        rows = json.loads(groups)
        left = [node_of({name: row[name] for name in row if name != "nodes"}) for row in rows for _ in range(int(row["nodes"]))]
    except (ValueError, TypeError, KeyError) as error:
        raise ResourceError(
            where=GROWS_TO,
            found=f"{groups[:80]} ({type(error).__name__}: {error})",
            expected='a list of groups of equal nodes: [{"nodes": 4, "CPU": 8, "GPU": 1}]',
            remedy="Correct it where the head is started; without it, only present nodes count.",
        ) from error
    for node in living:
        same = next((one for one in left if (one.cpus, one.gpus) == (node.cpus, node.gpus)), None)
        if same is not None:
            left.remove(same)
    return tuple(left)


@dataclass(frozen=True, kw_only=True)
class ElasticWidth:
    """Limits of a worker group whose size follows the cluster."""

    fewest: int  # smallest number of workers
    every_s: float  # seconds between two checks for room for more workers, with which the group goes on from its last checkpoint


@dataclass(frozen=True, kw_only=True)
class Demand:
    """How a stage is built, and what that reserves.

    way: "task": in one process, as one worker; "group": by a worker group of Ray Train, which takes all its workers at once or none, and
    whose driver reserves nothing.
    """

    way: Literal["task", "group"]
    workers: int
    num_cpus: float  # CPUs of each worker
    num_gpus: float  # GPUs of each worker
    change: ElasticWidth | None = None  # limits of a group whose size follows the cluster
    gpu_type: str | None = None  # Ray's name of the only GPUs to use
    is_alone: bool = False  # True for a task that would be a group with more workers, for example a training on one worker

    @property
    def options(self) -> dict[str, Any]:
        """Resources of a worker as options of a Ray task or actor."""
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "resources": self.resources}

    @property
    def resources(self) -> dict[str, float] | None:
        """Ray resources of a worker besides CPUs and GPUs: a little of a resource that only nodes with GPUs of `gpu_type` have."""
        return {f"{GPU_TYPE}{self.gpu_type}": 0.001} if self.gpu_type else None

    @property
    def is_scarce(self) -> bool:
        """True if there are at most `trainings_at_once` of it: worker groups, and processes with a GPU."""
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
        case "group" | "shards" if runtime.most_workers > 1 or (stage.built_by == "group" and runtime.engine == "deepspeed"):
            change = ElasticWidth(fewest=runtime.fewest_workers, every_s=runtime.checkpoint_every_s) if runtime.workers_may_change else None
            return replace(worker_demand(runtime), way="group", change=change)
        case "one" | "shards" | "group":
            demand = replace(worker_demand(runtime), workers=1, is_alone=stage.built_by == "group")
            return demand if stage.uses_gpu else replace(demand, num_gpus=0.0, gpu_type=None)


def worker_demand(runtime: Runtime) -> Demand:
    """Return the demand of up to `runtime.workers` separate workers (upper end of a range)."""
    num_gpus = runtime.gpus_per_worker
    return Demand(
        way="task",
        workers=runtime.most_workers,
        num_cpus=runtime.cpus_per_worker,
        num_gpus=num_gpus,
        gpu_type=runtime.gpu_type if num_gpus else None,
    )


PARTS_PER_WORKER = 4  # so that the workers end at about the same time
MIN_ROWS_PER_PART = 512  # fewer are computed faster than they are sent


def rows_per_part(num_rows: int, runtime: Runtime) -> int:
    """Return the rows of a part: few enough that all workers get several parts, at most those of a shard."""
    wanted = -(-num_rows // (runtime.most_workers * PARTS_PER_WORKER))
    return min(runtime.rows_per_shard, max(wanted, MIN_ROWS_PER_PART))


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Number of trainings that a cluster runs at once with a runtime."""

    trainings_at_once: int  # how many trainings fit
    limited_by: str  # the resource that runs out first
    max_concurrent_trials: int  # how many trials Tune runs at once


def capacity(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float = 0.0) -> Capacity:
    """Compute how many trainings of this runtime the cluster can run at once.

    Args:
        worker_bytes: estimated memory of the largest worker (stages/fit.py); limits how many run at once, but never refuses one.

    Raises:
        ResourceError: not even one fits.
    """
    each = {"num_cpus": runtime.cpus_per_worker, "num_gpus": runtime.gpus_per_worker}
    by_node = [node.num_workers(**each) for node in nodes]
    fitting = sum(by_node)
    if fitting < runtime.fewest_workers:
        cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
        of_gpus = f" and {runtime.gpus_per_worker:g} GPUs" if runtime.gpus_per_worker else ""
        raise ResourceError(
            where="runtime",
            found=f"a training of {runtime.fewest_workers} workers with {runtime.cpus_per_worker:g} CPUs{of_gpus} each, on {len(nodes)} "
            f"node(s) with {cpus:g} CPUs and {gpus:g} GPUs in all",
            expected=f"at most {fitting} such worker(s), as many as fit on the nodes",
            remedy="Lower runtime.workers, cpus_per_worker or gpus_per_worker, or add nodes (those of an autoscaler: SENTDIST_GROWS_TO).",
        )
    width = min(runtime.most_workers, fitting)
    at_once, limited_by = fitting // width, "CPUs"
    if each["num_gpus"] and sum(gpu_shares(node.gpus, each["num_gpus"]) for node in nodes) <= sum(
        how_often(node.cpus, each["num_cpus"]) for node in nodes
    ):
        limited_by = "GPUs"
    if worker_bytes:
        in_memory = sum(min(most, how_often(node.memory_bytes, worker_bytes)) for node, most in zip(nodes, by_node, strict=True))
        if in_memory // width < at_once:
            at_once, limited_by = max(1, int(in_memory // width)), f"memory: {memory_size(worker_bytes)} a worker"
    return Capacity(trainings_at_once=at_once, limited_by=limited_by, max_concurrent_trials=runtime.max_concurrent_trials or at_once)


def with_devices(runtime: Runtime, nodes: tuple[Node, ...]) -> Runtime:
    """Return the runtime with its GPUs decided: by default one for each worker, if enough workers fit on nodes with GPUs.

    Raises:
        ResourceError: `device` requires GPUs, and there are none.
    """
    if runtime.gpus_asked is None:
        fitting = sum(node.num_workers(num_cpus=runtime.cpus_per_worker, num_gpus=1.0) for node in nodes)
        return runtime.with_gpus(1.0 if fitting >= runtime.fewest_workers else 0.0)
    if runtime.device == "cuda" and not any(node.gpus for node in nodes):
        raise ResourceError(
            where="runtime.device=cuda",
            found=f"a cluster of {len(nodes)} node(s) without GPUs",
            expected="at least one",
            remedy="Start the cluster on nodes with GPUs, or set runtime.device=auto.",
        )
    return runtime.with_gpus(runtime.gpus_asked)


def with_gpu_type(nodes: tuple[Node, ...], runtime: Runtime) -> tuple[Node, ...]:
    """Return the nodes without GPUs of another type than `gpu_type`.

    Raises:
        ResourceError: no node has GPUs of that type.
    """
    if runtime.gpu_type is None:
        return nodes
    known = sorted({kind for node in nodes if node.gpus for kind in node.gpu_types})
    if runtime.gpu_type not in known:
        raise ResourceError(
            where="runtime.gpu_type, --gpu-type",
            found=f"{runtime.gpu_type}, which no node has",
            expected=f"one of the cluster's GPU types: {', '.join(known) or 'none that Ray knows by name'}",
            remedy="Name one of these, or omit it.",
        )
    return tuple(node if runtime.gpu_type in node.gpu_types else replace(node, gpus=0.0) for node in nodes)


def gpus_line(runtime: Runtime, nodes: tuple[Node, ...], *, workers_at_once: int) -> str:
    """Return a phrase on the devices of workers, and on GPUs of the cluster that stay idle."""
    num_gpus = int(sum(node.gpus for node in nodes))
    used = min(num_gpus, math.ceil(workers_at_once * min(runtime.gpus_per_worker, 1.0) - 1e-9))
    idle = f"; {num_gpus - used} GPU(s) idle" if used < num_gpus else ""
    return (f"on {used} GPU(s)" if used else "on CPUs") + idle


# Memory of CUDA's context and kernels on a GPU, which torch does not count: about as reported for A100 and H100; not measured here.
CONTEXT_BYTES = 0.6 * 2**30


def use_reserved(demand: Demand) -> None:
    """Limit torch to the CPUs and the share of GPU memory that this worker has reserved. Call it before any computation.

    Raises:
        ResourceError: torch cannot use the reserved GPU.
    """
    import torch  # takes seconds: drivers do without

    from sentdist.learning.precision import flush_subnormals

    torch.set_num_threads(max(1, int(demand.num_cpus)))
    flush_subnormals()
    if not demand.num_gpus:
        return
    keep_gpu_memory_whole()  # before torch is asked anything of the GPU
    if why := why_unusable():
        raise ResourceError(
            where="runtime.gpus_per_worker",
            found=f"a node with a GPU that torch cannot use ({socket.gethostname()}: {why})",
            expected="a torch for CUDA and a driver that is new enough for it",
            remedy="Look at `nvidia-smi` and install torch for CUDA on that node, or set runtime.gpus_per_worker=0.",
        )
    # The fractions of several processes and their CUDA contexts fit on the GPU together. Set also for a whole GPU: a process that stays
    # may have built a stage with a fraction before.
    total_bytes = torch.cuda.get_device_properties().total_memory
    share = 1.0 if demand.num_gpus >= 1 else max(demand.num_gpus / 2, demand.num_gpus - CONTEXT_BYTES / total_bytes)
    torch.cuda.set_per_process_memory_fraction(share)
