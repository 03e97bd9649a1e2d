"""What is printed about the GPUs that work is given."""

from __future__ import annotations

import math

from sentdist.errors import counted
from sentdist.execution.capacity import share_of_a_gpu
from sentdist.execution.cluster.nodes import Node, smallest_gpu
from sentdist.plan.runtime import Runtime
from sentdist.sizes import memory_size


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
