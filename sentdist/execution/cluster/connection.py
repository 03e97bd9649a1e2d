"""Joining a running cluster, as a driver of it."""

from __future__ import annotations

import atexit
import logging
import os
import sys

import ray
from ray.exceptions import RayError

from sentdist.errors import RecipeError, ResourceError
from sentdist.execution.cluster.address import ask, choose, local_nodes, refusal
from sentdist.execution.cluster.messages import shorten_messages
from sentdist.execution.sigterm import end_on_sigterm
from sentdist.inference.opening import IN_A_JOB

AUTH_MODES = ("token", "disabled")


def connect() -> None:
    """Join the running cluster: that of the job, or the one that RAY_ADDRESS names, or the user's only one on this machine; says which.

    Raises:
        RecipeError: RAY_AUTH_MODE is not set.
        ResourceError: there is none, or it does not answer, or refuses the token; within seconds, whatever listens there.
    """
    if ray.is_initialized():
        return
    check_auth_mode()
    chosen = choose(os.environ.get("RAY_ADDRESS"), local_nodes())
    if trouble := refusal(chosen, ask(chosen.address)):
        raise trouble
    if IN_A_JOB not in os.environ:
        print(f"Ray cluster: {chosen.address}, {chosen.because}.", file=sys.stderr)
    try:
        # Workers' own output stays in their log files: what people should see comes through the board.
        shorten_messages()
        ray.init(address=chosen.address, log_to_driver=False, logging_level=logging.ERROR)
        atexit.register(ray.shutdown)  # before Ray's own, which waits half a second for what workers print
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise ResourceError(
            where=f"Ray cluster at {chosen.address}",
            found=_said(error),
            expected="to join it, with the versions of Ray and Python that it has",
            remedy="`sentdist doctor` shows this environment; the head's log lies in its Ray folder.",
        ) from None


def _said(error: Exception) -> str:
    """The first line of an error; all of Ray's error on versions, whose first line does not name them."""
    text = str(error) or type(error).__name__
    return " ".join(text.split()) if text.startswith("Version mismatch") else text.partition("\n")[0]


def check_auth_mode() -> None:
    """Refuse to go on without RAY_AUTH_MODE: Ray would guess, and nodes that guess differently refuse each other.

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
    """Join the cluster as `connect` does, to have it build things; SIGTERM ends that in order."""
    connect()
    end_on_sigterm()
