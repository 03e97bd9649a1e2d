"""What a cluster is like at this moment, as Ray says it."""

from __future__ import annotations

import ray
from ray._private.state import available_resources_per_node

from sentdist.execution.board.diagnosis import ClusterState, Host
from sentdist.execution.cluster.nodes import node_of, nodes_of
from sentdist.execution.demand import Demand


def read_cluster(may_have: tuple[float, float] | None = None) -> ClusterState:
    """Ask Ray; a few milliseconds, in which this thread waits. may_have: see `ClusterNodes`."""
    living = [row for row in ray.nodes() if row["Alive"]]
    free = ray.available_resources()
    return ClusterState(
        hosts=tuple(
            Host(node=row["NodeID"], address=row["NodeManagerAddress"], offers=offers)
            for row, offers in zip(living, nodes_of(living), strict=True)
        ),
        free_cpus=free.get("CPU", 0.0),
        free_gpus=free.get("GPU", 0.0),
        may_have=may_have,
    )


def has_room(demand: Demand) -> bool:
    """Whether one worker of a demand would find its CPUs and GPUs at once; a few milliseconds, in which this thread waits."""
    return any(demand.workers_on(node_of(free)) for free in available_resources_per_node().values())
