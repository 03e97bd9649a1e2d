"""Call what Ray offers in private modules only; each function names the public way that is missing."""

from __future__ import annotations

from ray._private.state import state
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION  # type: ignore[attr-defined]


def draining_nodes() -> frozenset[str]:
    """Return the IDs of nodes that got notice to leave, empty while the head does not answer. `ray.nodes()` does not have it."""
    try:
        return frozenset(state.get_draining_nodes())
    except Exception:  # errors of many kinds; the caller asks again
        return frozenset()


def drain_node(gcs_address: str, node: str, *, why: str, deadline_ms: int) -> str | None:
    """Give a node notice to leave; return why it is refused, else None. The command `ray drain-node` takes seconds for each node."""
    is_accepted, refusal = GcsClient(address=gcs_address).drain_node(node, DRAIN_NODE_REASON_PREEMPTION, why, deadline_ms)
    return None if is_accepted else str(refusal)
