"""From a recipe's file to its finished stages: connect, plan, carry out."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import ray

from sentdist.errors import RecipeError, ResourceError
from sentdist.execution.sweep import Speak, SweepSummary, run_sweep
from sentdist.stages.planned import planned
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import NullTracker, Tracker

AUTH_MODES = ("token", "disabled")


def run_recipe(
    path: Path, *, overrides: Sequence[str] = (), store: str, data: Path | None = None, tracking: str | None = None, speak: Speak = print
) -> SweepSummary:
    """Build what a recipe needs on the cluster that RAY_ADDRESS names; a recipe without a sweep is a sweep of its methods and seeds.

    tracking: address of an MLflow server; None: the records in the store are the only log.

    Raises:
        SentdistError: a mistake in recipe, data, store or request, before anything was started.
    """
    check_auth_mode()
    plan, context = planned(path, overrides=overrides, store=store, data=data)
    connect()
    end_on_sigterm()
    return run_sweep(plan, context, tracker=_tracker(tracking, context.store), speak=speak)


def connect() -> None:
    """Join the running cluster: that of the job, or the one that RAY_ADDRESS names, or the one on this machine.

    Raises:
        ResourceError: there is none.
    """
    if ray.is_initialized():
        return
    try:
        # Workers' own output stays in their log files: what people should see comes through the board.
        ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise ResourceError(
            where="Ray",
            found=str(error).partition("\n")[0],
            expected="a running cluster",
            remedy="Start one (infra/quickstart.sh, or cluster/README.md) or run the recipe with --local.",
        ) from None


def check_auth_mode() -> None:
    """Ray guesses where this is not said, and nodes that guess differently refuse each other.

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


def end_on_sigterm() -> None:
    """`ray job stop` sends SIGTERM and kills 3 s later: leave the board in that time, so that work nobody waits for ends too."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _tracker(uri: str | None, store: ArtifactStore) -> Tracker:
    if not uri:
        return NullTracker()
    from sentdist.tracking.mlflow_tracker import MlflowTracker

    return MlflowTracker(uri, store)
