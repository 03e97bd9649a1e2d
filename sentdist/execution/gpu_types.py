"""Clusters with GPUs of several kinds: which a runtime may use, and what to say of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sentdist.errors import ResourceError
from sentdist.execution.cluster.nodes import Node
from sentdist.plan.runtime import Runtime


def with_gpu_type(nodes: tuple[Node, ...], runtime: Runtime) -> tuple[Node, ...]:
    """The nodes as a runtime may use them: GPUs of another kind than `gpu_type` do not count.

    Raises:
        ResourceError: no node has GPUs of that kind.
    """
    if runtime.gpu_type is None:
        return nodes
    if not any(node.gpus and runtime.gpu_type in node.gpu_types for node in nodes):
        there = ", ".join(gpu_types(nodes)) or "none that Ray knows by name"
        raise ResourceError(
            where="runtime.gpu_type, --gpu-type",
            found=f"{runtime.gpu_type}, which no node has",
            expected=f"one of the cluster's kinds of GPUs: {there}",
            remedy="Name one of these, or leave it out.",
        )
    return tuple(node if runtime.gpu_type in node.gpu_types else replace(node, gpus=0.0) for node in nodes)


def left_out_line(runtime: Runtime, nodes: tuple[Node, ...]) -> str:
    """What the line on GPUs says of those that `gpu_type` leaves idle; "" where there are none."""
    num = int(sum(node.gpus for node in nodes) - sum(node.gpus for node in with_gpu_type(nodes, runtime)))
    return f"; idle: {num} of another kind (runtime.gpu_type={runtime.gpu_type})" if num else ""


def gpu_types(nodes: Iterable[Node]) -> dict[str, int]:
    """How many GPUs of each kind there are, by what Ray calls them."""
    found: dict[str, int] = {}
    for node in nodes:
        for kind in node.gpu_types if node.gpus else ():
            found[kind] = found.get(kind, 0) + int(node.gpus)
    return found


def gpu_types_note(runtime: Runtime, nodes: tuple[Node, ...]) -> str | None:
    """What to say where workers take GPUs of several kinds as they come; None elsewhere. nodes: without what `gpu_type` leaves out."""
    families = {node.gpu_types for node in nodes if node.gpus}
    if not runtime.gpus_per_worker or runtime.gpu_type is not None or len(families) < 2:
        return None
    counts = ", ".join(f"{count} {kind}" for kind, count in gpu_types(nodes).items())
    return f"GPUs of several kinds ({counts}) are used as they come; runtime.gpu_type uses one kind alone."
