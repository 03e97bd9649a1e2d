"""Compute from nodes and runtime how many trainings run at once, on which GPUs, before anything starts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sentdist.errors import ResourceError
from sentdist.files import memory_size
from sentdist.recipe.sections import Runtime
from sentdist.run.cluster.nodes import Node, gpu_shares, how_often, smallest_gpu, workers_on


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Number of trainings that a cluster runs at once with a runtime."""

    trainings_at_once: int  # how many trainings fit
    limited_by: str  # the resource that runs out first
    max_concurrent_trials: int  # how many trials Tune runs at once


def with_devices(runtime: Runtime, nodes: tuple[Node, ...]) -> Runtime:
    """Return the runtime with its GPUs decided: by default one for each worker, if enough workers fit on nodes with GPUs.

    Raises:
        ResourceError: `device` requires GPUs, and there are none.
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


def share_of_a_gpu(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float) -> float:
    """Return `gpus_per_worker`, or the larger share of the smallest GPU, in tenths, that a worker needs by estimate.

    A share limits a worker's memory, so too small a share is of no use. worker_bytes: on the GPU (see `gpu_bytes` of memory.py).
    """
    asked = runtime.gpus_per_worker
    if not 0 < asked < 1:
        return asked
    return min(1.0, max(asked, math.ceil(10 * worker_bytes / smallest_gpu(nodes) - 1e-9) / 10))


def capacity(runtime: Runtime, nodes: tuple[Node, ...], *, worker_bytes: float = 0.0) -> Capacity:
    """Compute how many trainings of this runtime the cluster can run at once.

    Args:
        worker_bytes: estimated memory of the largest worker (see memory.py); limits how many run at once, but never refuses one.

    Raises:
        ResourceError: not even one fits.
    """
    by_resource = {
        "CPUs": sum(how_often(node.cpus, runtime.cpus_per_worker) for node in nodes),
        "GPUs": sum(gpu_shares(node.gpus, runtime.gpus_per_worker) for node in nodes) if runtime.gpus_per_worker else math.inf,
    }
    by_node = [workers_on(node, num_cpus=runtime.cpus_per_worker, num_gpus=runtime.gpus_per_worker) for node in nodes]
    fitting = sum(by_node)
    if fitting < runtime.fewest_workers:
        raise _too_much(runtime, nodes, fitting)
    in_memory = (
        sum(min(most, how_often(node.memory_bytes, worker_bytes)) for node, most in zip(nodes, by_node, strict=True))
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


def _too_much(runtime: Runtime, nodes: tuple[Node, ...], fitting: int) -> ResourceError:
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    workers = runtime.fewest_workers
    wanted = [f"{workers} × {runtime.cpus_per_worker:g} CPUs = {workers * runtime.cpus_per_worker:g} CPUs"]
    if runtime.gpus_per_worker:
        wanted.append(f"{workers} × {runtime.gpus_per_worker:g} GPUs = {workers * runtime.gpus_per_worker:g} GPUs")
    return ResourceError(
        where="runtime",
        found=f"a training of {' and '.join(wanted)}, on {len(nodes)} node(s) with {cpus:g} CPUs and {gpus:g} GPUs in all",
        expected=f"at most {fitting} such worker(s), as many as fit on the nodes",
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


def with_gpu_type(nodes: tuple[Node, ...], runtime: Runtime) -> tuple[Node, ...]:
    """Return the nodes without GPUs of another type than `gpu_type`.

    Raises:
        ResourceError: no node has GPUs of that type.
    """
    if runtime.gpu_type is None:
        return nodes
    if not any(node.gpus and runtime.gpu_type in node.gpu_types for node in nodes):
        there = ", ".join(gpu_types(nodes)) or "none that Ray knows by name"
        raise ResourceError(
            where="runtime.gpu_type, --gpu-type",
            found=f"{runtime.gpu_type}, which no node has",
            expected=f"one of the cluster's GPU types: {there}",
            remedy="Name one of these, or omit it.",
        )
    return tuple(node if runtime.gpu_type in node.gpu_types else replace(node, gpus=0.0) for node in nodes)


def left_out_line(runtime: Runtime, nodes: tuple[Node, ...]) -> str:
    """Return the part of the line on GPUs about those left idle by `gpu_type`; "" if there are none."""
    num = int(sum(node.gpus for node in nodes) - sum(node.gpus for node in with_gpu_type(nodes, runtime)))
    return f"; idle: {num} of another kind (runtime.gpu_type={runtime.gpu_type})" if num else ""


def gpu_types(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the number of GPUs of each type, by Ray's names."""
    found: dict[str, int] = {}
    for node in nodes:
        for kind in node.gpu_types if node.gpus else ():
            found[kind] = found.get(kind, 0) + int(node.gpus)
    return found


def gpu_types_note(runtime: Runtime, nodes: tuple[Node, ...]) -> str | None:
    """Return a note if workers would use GPUs of several types, else None. nodes: as `with_gpu_type` returns them."""
    families = {node.gpu_types for node in nodes if node.gpus}
    if not runtime.gpus_per_worker or runtime.gpu_type is not None or len(families) < 2:
        return None
    counts = ", ".join(f"{count} {kind}" for kind, count in gpu_types(nodes).items())
    return f"GPUs of several types ({counts}) are used in any order; runtime.gpu_type selects one type."
