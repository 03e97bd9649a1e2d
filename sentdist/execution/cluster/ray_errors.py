"""What Ray raises when a process or host is lost, and what a body raised, out of Ray's wrappers."""

from __future__ import annotations

import re

import ray
from ray.exceptions import LocalRayletDiedError, NodeDiedError, OutOfMemoryError, RayActorError, RayTaskError, WorkerCrashedError

from sentdist.addresses import without_secrets
from sentdist.errors import EncoderError, ResourceError


class HostTakenAwayError(Exception):
    """Hosts of a group were given notice to leave, and left. Ray Train's own word for it costs whoever reads it seconds of imports."""


# What takes a process away without a word of its own; whatever a body raises is final.
PROCESS_LOST = (WorkerCrashedError, NodeDiedError, OutOfMemoryError, LocalRayletDiedError)
GONE = (*PROCESS_LOST, RayActorError, HostTakenAwayError)


def was_announced(loss: BaseException) -> bool:
    """Whether a host had been given notice before it was lost, as spot machines are."""
    return isinstance(loss, HostTakenAwayError) or (isinstance(loss, RayActorError) and loss.preempted)


def cause_of(error: BaseException) -> BaseException:
    """The exception that a body raised, out of Ray's wrappers (one for each process border it crossed)."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    return error


def on_node(error: RayTaskError) -> BaseException:
    """As `cause_of`; an error of a GPU, a memory or an encoder on another host than this says on which: they differ."""
    cause, node = cause_of(error), _node_of(error)
    if not isinstance(cause, ResourceError | EncoderError) or node in (None, ray.util.get_node_ip_address()):
        return cause
    return cause.with_context(where=f"node {node}: {cause.where}")


def _node_of(error: RayTaskError) -> str | None:
    """The address of the node on which a body raised; what `ray.get` raises, of the body's type too, has it in its text alone."""
    found = re.search(r"\(pid=\d+, ip=([^,)\s]+)", str(error))
    return found[1] if found else vars(error).get("ip")


def reason(error: BaseException) -> str:
    """Kind and first line of an error of Ray's."""
    lines = [line.strip() for line in without_secrets(str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
