"""Run the missing trials of a plan on a cluster: trials in Tune, shared stages through the board."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from sentdist.errors import SentdistError, SweepStopped, counted
from sentdist.recipe.stages import Train
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.recipe.unroll import Plan, Trial
from sentdist.run.checkpoints import forget_finished
from sentdist.run.client import BoardClient, printed_events
from sentdist.run.orders import build_stage
from sentdist.run.progress import Show, SweepSummary, TrialOutcome, check_space, overlaps_not_counted, progress_of
from sentdist.run.resources import (
    Capacity,
    capacity,
    cluster_growth,
    gpus_line,
    old_gpu_of,
    with_devices,
    with_gpu_type,
)
from sentdist.run.submissions import Submission
from sentdist.stages.context import Context
from sentdist.stages.fit import (
    TOKENS_PER_SENTENCE,
    check_precisions,
    size_of,
    worker_bytes,
)
from sentdist.stages.text_stages import build_overlaps
from sentdist.store.searches import SearchRecord
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.text import PrintLine
from sentdist.tracking.tracker import Tracker


def run_sweep(
    plan: Plan, context: Context, *, tracker: Tracker | None = None, print_line: PrintLine = print, show: Show | None = None
) -> SweepSummary:
    """Build the missing stages of a plan on the connected cluster. Failed trials do not stop the others.

    Args:
        show: takes the progress several times a second.

    Raises:
        ResourceError: the cluster can never run one training of this runtime; nothing was started.
        StoreError: the store cannot be written, or is too small for the encoders to train.
    """
    started = time.perf_counter()
    before = context.store.get_all(plan.stages).keys()
    missing = [trial for trial in plan.trials if trial.key not in before]
    to_build = frozenset(stage.key for stage in plan.stages) - before
    allocation = allocate(plan, context, to_build) if missing else None
    context = context if allocation is None else allocation.context
    check_space(plan, context, to_build)
    forget_finished(context.store, before)
    sweep = sweep_record(plan)
    save_sweep(context.store, sweep)
    tracker = tracker or Tracker()
    tracker.begin_sweep(sweep, {stage.key: stage for stage in plan.stages})
    outcomes: dict[str, TrialOutcome] = {}
    with _tracked(tracker, outcomes):
        if allocation is not None:
            from sentdist.run.trials import run_trials  # Tune takes seconds to import, and often nothing is missing

            print_line(_opening(plan, missing, allocation))
            if allocation.growth:
                print_line(allocation.growth)
            submission = allocation.submission(plan.recipe.name, tracker)
            at_once = allocation.capacity.max_concurrent_trials
            board = BoardClient(submission, build_stage)
            try:
                with printed_events(board, progress_of(plan, to_build), print_line, show=show):
                    outcomes |= run_trials(missing, submission, build_stage, at_once=at_once, print_line=print_line)
            finally:
                board.leave()
            for outcome in outcomes.values():
                if outcome.error is not None and not isinstance(outcome.error, SweepStopped):
                    tracker.fail(outcome.key, outcome.message)
    try:
        build_overlaps(plan, context)
    except SentdistError as error:  # the sweep is over, and its summary is still to be printed
        print_line(overlaps_not_counted(error))
    summary = SweepSummary.of(plan, context.store, before, outcomes, time.perf_counter() - started)
    for line in [*summary.lines, *(f"tracking: {warning}" for warning in tracker.warnings)]:
        print_line(line)
    return summary


class ClusterAllocation(NamedTuple):
    """Resources of a cluster for the trainings of a plan."""

    context: Context  # with the devices decided
    capacity: Capacity
    devices: str  # a phrase on used and idle GPUs
    growth: str | None  # a line on nodes to come

    def submission(self, name: str, tracker: Tracker) -> Submission:
        """Return the submission of a sweep or search to the board."""
        return Submission(context=self.context, tracker=tracker, trainings_at_once=self.capacity.trainings_at_once, sweep=name)


def search_on_cluster(
    planned: PlannedSearch,
    context: Context,
    tracker: Tracker,
    *,
    print_line: PrintLine,
    until: float | None = None,
    at_once: int | None = None,
) -> SearchRecord:
    """Run a search as `search_in_process` does, on the connected cluster.

    Args:
        until: see `SearchRun`.
        at_once: trials at the same time; None for as many as fit.

    Raises:
        ResourceError: the cluster can never run one training; nothing was started.
        SweepStopped: by `sentdist stop`; submitted again, the search goes on.
        StoreError: the store cannot be written.
    """
    from sentdist.run.search import SearchRun
    from sentdist.run.trials import run_search  # Tune takes seconds to import

    one_of_each = planned.plan([(method, planned.first(method)) for method in planned.methods])
    allocation = allocate(one_of_each, context, frozenset(stage.key for stage in one_of_each.stages))
    width = at_once or allocation.capacity.max_concurrent_trials
    run = SearchRun(planned, allocation.context, tracker, print_line=print_line, until=until)
    print_line(f"{planned.recipe.name}: search, {counted(width, 'trial')} at once, {allocation.devices}; store {context.store.shown}")
    if allocation.growth:
        print_line(allocation.growth)
    run_search(run, allocation.submission(planned.recipe.name, tracker), at_once=width)
    return run.choose()


def allocate(plan: Plan, context: Context, to_build: Set[str]) -> ClusterAllocation:
    """Allocate the connected cluster's resources to a plan. to_build: keys of the stages that are not in the store.

    Raises:
        ResourceError: the cluster can never run one training of this runtime.
    """
    growth = cluster_growth()
    nodes = with_gpu_type(growth.nodes, context.runtime)
    context = replace(context, runtime=with_devices(context.runtime, nodes))
    left = (stage for stage in plan.stages if stage.key in to_build)
    check_precisions(left, context.runtime, old_gpu=old_gpu_of(nodes))
    offered = capacity(context.runtime, nodes, worker_bytes=_largest_worker(plan, context, to_build))
    at_once = offered.trainings_at_once * context.runtime.most_workers
    devices = gpus_line(context.runtime, growth.nodes, workers_at_once=at_once)
    return ClusterAllocation(context, offered, devices, growth.line)


@contextmanager
def _tracked(tracker: Tracker, outcomes: Mapping[str, TrialOutcome]) -> Iterator[None]:
    """End the sweep's tracking run, however the sweep ends."""
    try:
        yield
    except BaseException:
        tracker.finish_sweep("stopped")
        raise
    tracker.finish_sweep("stopped" if any(isinstance(outcome.error, SweepStopped) for outcome in outcomes.values()) else None)


def _largest_worker(plan: Plan, context: Context, to_build: Set[str]) -> float:
    """Bytes of host memory of a worker of the largest training that is left."""
    trainings = [stage for stage in plan.stages if isinstance(stage, Train) and stage.key in to_build]
    sizes = {encoder: size_of(encoder, context) for encoder in {stage.encoder for stage in trainings}}
    tokens = {stage.corpus.key: plan.tokens.get(stage.corpus.key, TOKENS_PER_SENTENCE) for stage in trainings}
    return max(
        (worker_bytes(stage, sizes[stage.encoder], context.runtime, tokens=tokens[stage.corpus.key]) for stage in trainings), default=0.0
    )


def _opening(plan: Plan, missing: list[Trial], allocation: ClusterAllocation) -> str:
    runtime, offered = plan.recipe.runtime, allocation.capacity
    width = counted(runtime.most_workers, "worker")
    if runtime.workers_may_change:
        width = f"{runtime.fewest_workers} to {width}"
    limit = f"{counted(offered.trainings_at_once, 'training')} at once (bound by {offered.limited_by})"
    to_run = f"{len(missing)} of {counted(len(plan.trials), 'trial')} to run"
    return f"{plan.recipe.name}: {to_run}, {width} a training, {limit}, {allocation.devices}; store {allocation.context.store.shown}"
