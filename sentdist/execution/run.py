"""Builds a plan on a running cluster."""

from __future__ import annotations

from sentdist.execution.cluster.connection import connect_to_drive
from sentdist.execution.progress import Show
from sentdist.execution.sweep import run_sweep
from sentdist.execution.sweep_end import SweepSummary
from sentdist.plan.unroll import Plan
from sentdist.print_line import PrintLine
from sentdist.stages.context import Context
from sentdist.tracking.mlflow_tracker import make_tracker


def run_on_cluster(
    plan: Plan, context: Context, *, tracking: str | None = None, print_line: PrintLine = print, show: Show | None = None
) -> SweepSummary:
    """Build whatever the store lacks of a plan on the cluster that RAY_ADDRESS names; SIGTERM ends the sweep in order.

    tracking: address of an MLflow server; None: the records in the store are the only log. show: see `run_sweep`.

    Raises:
        SentdistError: no cluster, one that refuses, or a mistake in the request; nothing was started.
    """
    connect_to_drive()
    return run_sweep(plan, context, tracker=make_tracker(tracking, context.store), print_line=print_line, show=show)
