"""What the nodes of a cluster offer, and how many workers each holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sentdist.gpus import GPUS

GPU_TYPE = "accelerator_type:"  # how Ray begins the name of the resource that a node with such GPUs has


@dataclass(frozen=True, kw_only=True)
class Node:
    """What one node offers."""

    cpus: float
    gpus: float = 0.0
    memory_bytes: float = math.inf
    gpu_bytes: float = math.inf  # memory of each GPU, where it is known
    old_gpu: str | None = None  # the kind of its GPUs, where that is known and older than Ampere
    gpu_types: tuple[str, ...] = ()  # what Ray calls them; sometimes a family and its member


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


def workers_on(node: Node, *, num_cpus: float, num_gpus: float) -> int:
    """How many workers of that size a node holds."""
    by_cpus = how_often(node.cpus, num_cpus)
    return int(min(by_cpus, gpu_shares(node.gpus, num_gpus)) if num_gpus else by_cpus)


def gpu_shares(gpus: float, num_gpus: float) -> float:
    """How many requests of one size a node's GPUs serve. Ray takes a part from a single GPU, so 0.6 fits into four GPUs four times.
    Of GPUs that are partly in use only the sum is known: what is left beyond whole GPUs counts as the rest of one."""
    if num_gpus >= 1 or math.isinf(gpus):
        return how_often(gpus, num_gpus)
    whole = math.floor(gpus + 1e-9)
    return whole * how_often(1.0, num_gpus) + how_often(max(0.0, gpus - whole), num_gpus)


def how_often(offered: float, wanted: float) -> float:
    """How often `wanted` fits; the small term forgives 0.1 + 0.2."""
    return offered if math.isinf(offered) else math.floor(offered / wanted + 1e-9)


def smallest_gpu(nodes: tuple[Node, ...]) -> float:
    """Memory of the smallest GPU, in bytes; infinite where it is not known, or there is none."""
    return min((node.gpu_bytes for node in nodes if node.gpus), default=math.inf)


def old_gpu_of(nodes: tuple[Node, ...]) -> str | None:
    """The kind of a GPU older than Ampere, where there is one."""
    return next((node.old_gpu for node in nodes if node.gpus and node.old_gpu), None)
