"""Join a running cluster as a driver; classify and unwrap Ray's errors."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import ray
import ray._private.worker as ray_worker
from ray.exceptions import LocalRayletDiedError, NodeDiedError, OutOfMemoryError, RayActorError, RayError, RayTaskError, WorkerCrashedError

from sentdist.errors import RecipeError, ResourceError, one_line
from sentdist.inference.opening import IN_A_JOB
from sentdist.machine import end_on_sigterm
from sentdist.run.address import check, choose, local_nodes
from sentdist.text import without_secrets

# Messages that Ray publishes to drivers and that need no action: losses, which the board repeats and prints, and the number of processes,
# some of which only wait.
NOT_PRINTED = (
    "Raylet is terminated",
    "has been marked dead",
    "A worker died or was killed while executing a task",
    "The actor died",
    "worker processes have been started on node",
)


def print_message(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
    """Print the first line of a message from Ray. (`log_to_driver=False` drops what workers print, not what Ray publishes as errors.)"""
    for message in map(str, data["lines"]):
        if message.strip() and not any(words in message for words in NOT_PRINTED):
            print(f"Ray: {message.strip().splitlines()[0]}", file=sys.stderr, flush=True)


AUTH_MODES = ("token", "disabled")


def connect() -> None:
    """Join the running cluster (of the job, or named by RAY_ADDRESS, or the user's only one on this machine) and print which.

    Raises:
        RecipeError: RAY_AUTH_MODE is not set.
        ResourceError: there is no cluster, or it does not answer or refuses the token; raised within seconds.
    """
    if ray.is_initialized():
        return
    check_auth_mode()
    chosen = choose(os.environ.get("RAY_ADDRESS"), local_nodes())
    check(chosen)
    if IN_A_JOB not in os.environ:
        print(f"Ray cluster: {chosen.address}, {chosen.because}.", file=sys.stderr)
    try:
        # Workers' output stays in their log files: lines for users come through the board.
        ray_worker.print_to_stdstream = print_message
        ray.init(address=chosen.address, log_to_driver=False, logging_level=logging.ERROR)
        atexit.register(ray.shutdown)  # before Ray's own, which waits half a second for what workers print
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise ResourceError(
            where=f"Ray cluster at {chosen.address}",
            found=without_secrets(one_line(str(error) or type(error).__name__, 400)),
            expected="to join it, with its versions of Ray and Python",
            remedy="`sentdist doctor` shows this environment; the head's log is in its Ray folder.",
        ) from None


def check_auth_mode() -> None:
    """Require RAY_AUTH_MODE: Ray would guess, and nodes that guess differently refuse each other.

    Raises:
        RecipeError: RAY_AUTH_MODE is not set.
    """
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode not in AUTH_MODES:
        raise RecipeError(
            where="environment variable RAY_AUTH_MODE",
            found="nothing" if mode is None else mode,
            expected="token or disabled, as on the cluster's nodes",
            remedy="export RAY_AUTH_MODE=token (with RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH).",
        )


def connect_to_drive() -> None:
    """Join the cluster to build stages; SIGTERM ends this process in order."""
    connect()
    end_on_sigterm()


class HostTakenAwayError(Exception):
    """Hosts of a group left after notice. Unpickling Ray Train's own exception for this takes seconds of imports."""


# A process ended without raising; any exception from a body is final.
PROCESS_LOST = (WorkerCrashedError, NodeDiedError, OutOfMemoryError, LocalRayletDiedError)
GONE = (*PROCESS_LOST, RayActorError, HostTakenAwayError)


def cause_of(error: BaseException) -> BaseException:
    """Return the exception that a body raised, without Ray's wrappers (one for each process border crossed)."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    return error


def reason(error: BaseException) -> str:
    """Return type and first line of an error from Ray."""
    lines = [line.strip() for line in without_secrets(str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
