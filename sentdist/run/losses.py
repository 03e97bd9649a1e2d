"""Recognise lost processes and hosts, and hosts that got notice to leave; word the events that end an attempt at a stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import ray
from ray._private.state import state
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION  # type: ignore[attr-defined]

from sentdist.errors import ArtifactLost, ResourceError, SentdistError, named
from sentdist.recipe.stage import Stage
from sentdist.run.connection import GONE, PROCESS_LOST, cause_of, reason
from sentdist.run.events import StageEvent
from sentdist.run.resources import Demand

NOTICE_S = 2.0  # between two checks for a notice: spot machines get it 30 s to 2 min ahead
LAST_CHECK_S = 0.5  # a check takes milliseconds, but hangs while the head is away
MAX_RAISED = 2  # repetitions of a stage after errors in a group that may only mean a lost peer; a bug raises the same again


class GroupLostError(Exception):
    """A worker group ended too early. origin: a worker's error, perhaps only that it lost another, or Ray's error for a lost worker."""

    def __init__(self, origin: BaseException) -> None:
        super().__init__(origin)
        self.origin = origin


LOSSES = (*PROCESS_LOST, GroupLostError)


class Losses:
    """Counts the lost attempts at one stage. max_failures: losses of processes or hosts after which it is built again."""

    def __init__(self, stage: Stage, max_failures: int) -> None:
        self._stage, self._max_failures = stage, max_failures
        self._num_lost = self._num_raised = 0

    def add(self, loss: BaseException) -> StageEvent:
        """Count a loss; return the event that the stage is built again.

        Raises:
            ResourceError: it was lost too often.
            Exception: a worker raised it, and it is final.
        """
        found = cause_of(loss)
        cause = found.origin if isinstance(found, GroupLostError) else loss
        if not isinstance(cause, GONE):
            self._num_raised += 1
            if isinstance(cause, SentdistError) or self._num_raised > min(MAX_RAISED, self._max_failures):
                raise cause from None
        else:
            self._num_lost += 1
            if self._num_lost > self._max_failures:
                raise ResourceError(
                    where=f"{self._stage.kind} {self._stage.label}",
                    found=f"that its process or host was lost {self._num_lost} times ({reason(cause)})",
                    expected=f"at most {self._max_failures} losses (runtime.max_failures)",
                    remedy="Check `ray status` and the nodes' memory. Submit again: it goes on where it was.",
                ) from None
        return StageEvent.of(self._stage, "retry", message=f"its process or host was lost ({reason(cause)}); it is built again")


def may_be_a_lost_peer(error: Exception, demand: Demand) -> bool:
    """Return True if an error in a group may only mean that a worker is gone; the board then decides on another attempt."""
    return demand.way != "task" and not isinstance(error, SentdistError)


def end_of(stage: Stage, error: BaseException) -> StageEvent:
    """Return the event of an error that ends a stage. A lost input is not a failure: the caller requests the stage again."""
    if isinstance(error, ArtifactLost):
        return StageEvent.of(stage, "lost", message=str(error))
    return StageEvent.of(stage, "failed", message=named(error))


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


class LeaveNotice:
    """Checks from a thread, while the context is open, whether this host got notice to leave: a spot machine, `ray drain-node`.

    Ray Train's `get_preemption_info` is a barrier of all workers at each call, and does not serve trainings on one worker.
    """

    def __init__(self, *, is_draining: Callable[[str], bool] | None = None) -> None:
        """is_draining: whether a node is about to leave; None asks Ray."""
        self._is_draining = is_draining or (lambda node: node in draining_nodes())
        self._node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        self._is_leaving = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._check, name="sentdist-notice", daemon=True)

    def __enter__(self) -> LeaveNotice:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join(LAST_CHECK_S)

    def is_leaving(self) -> bool:
        """Return True once the host got notice."""
        return self._is_leaving

    def _check(self) -> None:
        while self._node and not self._is_leaving:
            self._is_leaving = self._is_draining(self._node)
            if self._is_over.wait(NOTICE_S):
                return


def leave(*, within_s: float, everywhere: bool) -> list[str]:
    """Give notice that this host, or every host, of the connected cluster will leave; return the addresses of these hosts.

    Trainings there write a checkpoint within seconds. No process is ended.

    Args:
        within_s: seconds until the hosts leave.
        everywhere: True for all hosts.

    Raises:
        ResourceError: a host cannot be given notice.
    """
    context = ray.get_runtime_context()
    here = context.get_node_id()
    nodes = [node for node in ray.nodes() if node["Alive"] and (everywhere or node["NodeID"] == here)]
    deadline_ms = int((time.time() + within_s) * 1000)
    for node in nodes:
        why = drain_node(context.gcs_address, node["NodeID"], why="rayjobs.leave", deadline_ms=deadline_ms)
        if why is not None:
            raise ResourceError(
                where=f"host {node['NodeManagerAddress']}",
                found=f"that it cannot be given notice to leave ({why})",
                expected="a host of this cluster",
                remedy="Trainings on it go on from their last checkpoint.",
            )
    return sorted(str(node["NodeManagerAddress"]) for node in nodes)
