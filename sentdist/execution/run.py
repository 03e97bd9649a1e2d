"""From a recipe's file to its finished stages: connect, plan, carry out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentdist.execution.cluster.connection import check_auth_mode, connect, end_on_sigterm
from sentdist.execution.sweep import PrintLine, SweepSummary, run_sweep
from sentdist.stages.planned import planned
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import NullTracker, Tracker


def run_recipe(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    store: str,
    data: Path | None = None,
    tracking: str | None = None,
    print_line: PrintLine = print,
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
    return run_sweep(plan, context, tracker=_tracker(tracking, context.store), print_line=print_line)


def _tracker(uri: str | None, store: ArtifactStore) -> Tracker:
    if not uri:
        return NullTracker()
    from sentdist.tracking.mlflow_tracker import MlflowTracker

    return MlflowTracker(uri, store)
