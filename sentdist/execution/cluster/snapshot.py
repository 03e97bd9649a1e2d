"""What a cluster is like at this moment, as Ray says it."""

from __future__ import annotations

import ray
from ray._private.state import state  # what an autoscaler may add is said nowhere else; Ray Train reads it here too

from sentdist.execution.board.diagnosis import ClusterState, Host
from sentdist.execution.resources import nodes_of


def read_cluster() -> ClusterState:
    """Ask Ray; a few milliseconds, in which this thread waits."""
    living = [row for row in ray.nodes() if row["Alive"]]
    free = ray.available_resources()
    may_have = state.get_max_resources_from_cluster_config()
    return ClusterState(
        hosts=tuple(
            Host(node=row["NodeID"], address=row["NodeManagerAddress"], offers=offers)
            for row, offers in zip(living, nodes_of(living), strict=True)
        ),
        free_cpus=free.get("CPU", 0.0),
        free_gpus=free.get("GPU", 0.0),
        may_have=None if may_have is None else (float(may_have.get("CPU", 0)), float(may_have.get("GPU", 0))),
    )
