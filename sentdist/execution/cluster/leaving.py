"""Hosts that are about to leave: the cluster learns it in time, so that nothing is lost with them."""

from __future__ import annotations

import time

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]  # as `ray drain-node`, which tells one host and takes seconds for each
from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION  # type: ignore[attr-defined]

from sentdist.errors import ResourceError


def leave(*, within_s: float, everywhere: bool) -> list[str]:
    """Tell the connected cluster that this host, or every one, will be taken away; the addresses of those that go.

    Trainings there write a checkpoint within seconds. Nothing is ended: that is for whoever takes the host away.

    Raises:
        ResourceError: a host cannot be given notice.
    """
    context = ray.get_runtime_context()
    head = GcsClient(address=context.gcs_address)
    here = context.get_node_id()
    nodes = [node for node in ray.nodes() if node["Alive"] and (everywhere or node["NodeID"] == here)]
    deadline_ms = int((time.time() + within_s) * 1000)
    for node in nodes:
        is_accepted, why = head.drain_node(node["NodeID"], DRAIN_NODE_REASON_PREEMPTION, "sentdist leave", deadline_ms)
        if not is_accepted:
            raise ResourceError(
                where=f"host {node['NodeManagerAddress']}",
                found=f"that it cannot be given notice to leave ({why})",
                expected="a host of this cluster",
                remedy="Trainings on it go on from their last checkpoint.",
            )
    return sorted(str(node["NodeManagerAddress"]) for node in nodes)
