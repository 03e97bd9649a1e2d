"""Run the missing trials of a plan on a cluster: trials in Tune, shared stages through the board."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.errors import SentdistError, SweepStopped, counted
from sentdist.recipe.evaluation import overlaps_of
from sentdist.recipe.stage import most_at_once, topological
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan, Trial
from sentdist.run.build_stage import build_stage
from sentdist.run.checkpoints import forget_finished
from sentdist.run.client import BoardClient, printed_events
from sentdist.run.cluster.connection import cause_of, connect_to_drive
from sentdist.run.plan_facts import Show, disk_estimate, progress_of
from sentdist.run.resources import (
    Capacity,
    ClusterNodes,
    capacity,
    cluster_growth,
    gpu_memory_note,
    gpus_line,
    old_gpu_of,
    share_of_a_gpu,
    with_devices,
    with_gpu_type,
)
from sentdist.run.submissions import Submission
from sentdist.run.sweep_end import SweepSummary, TrialOutcome, overlaps_not_counted
from sentdist.stages.context import Context
from sentdist.stages.devices import check_precisions
from sentdist.stages.memory import (
    TOKENS_PER_SENTENCE,
    gpu_bytes,
    size_of,
    worker_bytes,
)
from sentdist.store.sweep import begin_sweep, sweep_record
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
    allocation = allocate(plan, context, to_build, work=_work_of(plan, missing, to_build)) if missing else None
    context = context if allocation is None else allocation.context
    estimate = disk_estimate(plan, context, to_build, at_once=1 if allocation is None else allocation.capacity.trainings_at_once)
    if to_build:  # a complete store may be read-only
        context.store.check_writable(needed_bytes=estimate.least)
    forget_finished(context.store, before)
    sweep = sweep_record(plan)
    begin_sweep(context.store, sweep, print_line)
    tracker = tracker or Tracker()
    tracker.begin_sweep(sweep, {stage.key: stage for stage in plan.stages})
    outcomes: dict[str, TrialOutcome] = {}
    with _tracked(tracker, outcomes):
        if allocation is not None:
            for line in [_opening(plan, missing, allocation), *allocation.notes]:
                print_line(line)
            if warning := estimate.warning(context.store.free_bytes()):
                print_line(warning)
            progress = progress_of(plan, to_build)
            printing = partial(printed_events, progress=progress, print_line=print_line, show=show)
            submission = allocation.submission(plan.recipe.name, tracker)
            outcomes |= _run_missing(submission, missing, allocation.capacity.max_concurrent_trials, print_line, printing)
    try:
        _build_overlaps(plan, context)
    except (SentdistError, RayError) as error:  # the sweep is over, and its summary is still to be printed
        print_line(overlaps_not_counted(error))
    summary = SweepSummary.of(plan, context.store, before, outcomes, time.perf_counter() - started)
    for line in [*summary.lines, *(f"tracking: {warning}" for warning in tracker.warnings)]:
        print_line(line)
    return summary


@dataclass(frozen=True, kw_only=True)
class ClusterAllocation:
    """Resources of a cluster for the trainings of a plan."""

    context: Context  # with the devices decided
    capacity: Capacity
    growth: ClusterNodes
    notes: tuple[str, ...]  # lines on GPUs and growth
    devices: str  # a phrase on used and idle GPUs

    def submission(self, name: str, tracker: Tracker) -> Submission:
        """Return the submission of a sweep or search to the board."""
        return Submission(
            context=self.context,
            tracker=tracker,
            trainings_at_once=self.capacity.trainings_at_once,
            sweep=name,
        )


@dataclass(frozen=True, kw_only=True)
class GpuWork:
    """How many stages can use GPUs at once."""

    of_all: float = math.inf  # of all stages to build
    of_trials: float = math.inf  # of the trials that run at once
    because: str = ""  # the field or option that limits the trials

    def bounds(self, offered: Capacity) -> dict[str, float]:
        """Return limits on trainings at once, by their reason, the cluster first."""
        return {offered.limited_by: offered.trainings_at_once, f"the recipe: {self.of_all:g} of its stages at once": self.of_all} | (
            {self.because: self.of_trials} if self.because else {}
        )


def _work_of(plan: Plan, missing: Sequence[Trial], to_build: Set[str]) -> GpuWork:
    of_all = most_at_once(stage for stage in plan.stages if stage.key in to_build and stage.uses_gpu)
    going = plan.recipe.runtime.max_concurrent_trials
    if going is None or going >= len(missing):
        return GpuWork(of_all=of_all)
    of_trials = sum(stages_at_once(missing, to_build)[:going])
    return GpuWork(of_all=of_all, of_trials=of_trials, because=f"runtime.max_concurrent_trials={going}")


def stages_at_once(trials: Iterable[Trial], to_build: Set[str]) -> list[int]:
    """Return how many stages of each trial can use GPUs at once, largest first; shared stages count in each trial."""
    return sorted(
        (most_at_once(stage for stage in topological((trial.scores,)) if stage.key in to_build and stage.uses_gpu) for trial in trials),
        reverse=True,
    )


def allocate(plan: Plan, context: Context, to_build: Set[str], *, work: GpuWork | None = None) -> ClusterAllocation:
    """Allocate the connected cluster's resources to a plan.

    Args:
        to_build: keys of the stages that are not in the store.
        work: how many of them can use GPUs at once; None for no limit.

    Raises:
        ResourceError: the cluster can never run one training of this runtime.
    """
    growth = cluster_growth()
    nodes = with_gpu_type(growth.nodes, context.runtime)
    context = replace(context, runtime=with_devices(context.runtime, nodes))
    on_host, on_gpu = _largest_worker(plan, context, to_build)
    note = gpu_memory_note(context.runtime, nodes, worker_bytes=on_gpu)
    context = replace(context, runtime=context.runtime.with_gpus(share_of_a_gpu(context.runtime, nodes, worker_bytes=on_gpu)))
    left = (stage for stage in plan.stages if stage.key in to_build)
    check_precisions(left, context.runtime, old_gpu=old_gpu_of(nodes))
    offered = capacity(context.runtime, nodes, worker_bytes=on_host)
    bounds = (work or GpuWork()).bounds(offered)
    limited_by = min(bounds, key=lambda bound: bounds[bound])
    at_once = int(bounds[limited_by]) * context.runtime.most_workers
    devices = gpus_line(context.runtime, growth.nodes, workers_at_once=at_once)
    notes = tuple(one for one in (note, growth.line) if one)
    return ClusterAllocation(context=context, capacity=offered, growth=growth, notes=notes, devices=devices)


def _run_missing(
    submission: Submission,
    missing: list[Trial],
    at_once: int,
    print_line: PrintLine,
    printing: Callable[[BoardClient], AbstractContextManager[None]],
) -> dict[str, TrialOutcome]:
    from sentdist.run.trials import run_trials  # Tune takes seconds to import, and often nothing is missing

    board = BoardClient(submission, build_stage)
    try:
        with printing(board):
            outcomes = run_trials(missing, submission, build_stage, at_once=at_once, print_line=print_line)
    finally:
        board.leave()
    for outcome in outcomes.values():
        if outcome.error is not None and not isinstance(outcome.error, SweepStopped):
            submission.tracker.fail(outcome.key, outcome.message)
    return outcomes


def _build_overlaps(plan: Plan, context: Context) -> None:
    """Takes seconds; runs in a worker, where torch is already imported, which the driver does not need."""
    overlaps = overlaps_of(plan)
    finished = context.store.get_all(topological(overlaps))
    if all(overlap.key in finished or not all(needed.key in finished for needed in overlap.inputs) for overlap in overlaps):
        return
    try:
        ray.get(ray.remote(num_cpus=0)(_overlaps_there).remote(plan, context))
    except RayTaskError as error:
        raise cause_of(error) from None


def _overlaps_there(plan: Plan, context: Context) -> None:
    from sentdist.stages.text_stages import build_overlaps

    build_overlaps(plan, context)


@contextmanager
def _tracked(tracker: Tracker, outcomes: Mapping[str, TrialOutcome]) -> Iterator[None]:
    """End the sweep's tracking run, however the sweep ends."""
    try:
        yield
    except BaseException:
        tracker.finish_sweep("stopped")
        raise
    tracker.finish_sweep("stopped" if any(isinstance(outcome.error, SweepStopped) for outcome in outcomes.values()) else None)


def _largest_worker(plan: Plan, context: Context, to_build: Set[str]) -> tuple[float, float]:
    """Bytes of host and GPU memory of a worker of the largest training that is left."""
    trainings = [stage for stage in plan.stages if isinstance(stage, Train) and stage.key in to_build]
    sizes = {encoder: size_of(encoder, context) for encoder in {stage.encoder for stage in trainings}}

    def on_gpu(stage: Train) -> float:
        return gpu_bytes(stage, sizes[stage.encoder], context.runtime, tokens=tokens(stage))

    def on_host(stage: Train) -> float:
        return worker_bytes(stage, sizes[stage.encoder], context.runtime, tokens=tokens(stage))

    def tokens(stage: Train) -> float:
        return plan.tokens.get(stage.corpus.key, TOKENS_PER_SENTENCE)

    return max(map(on_host, trainings), default=0.0), max(map(on_gpu, trainings), default=0.0)


def _opening(plan: Plan, missing: list[Trial], allocation: ClusterAllocation) -> str:
    runtime, offered = plan.recipe.runtime, allocation.capacity
    width = counted(runtime.most_workers, "worker")
    if runtime.workers_may_change:
        width = f"{runtime.fewest_workers} to {width}"
    limit = f"{counted(offered.trainings_at_once, 'training')} at once (bound by {offered.limited_by})"
    to_run = f"{len(missing)} of {counted(len(plan.trials), 'trial')} to run"
    return f"{plan.recipe.name}: {to_run}, {width} a training, {limit}, {allocation.devices}; store {allocation.context.store.shown}"


def run_on_cluster(
    plan: Plan, context: Context, *, tracking: str | None = None, print_line: PrintLine = print, show: Show | None = None
) -> SweepSummary:
    """Build the missing stages of a plan on the cluster that RAY_ADDRESS names; SIGTERM ends the sweep in order.

    Args:
        tracking: address of an MLflow server; None if the records in the store are the only log.
        show: see `run_sweep`.

    Raises:
        SentdistError: no cluster, one that refuses, or a mistake in the request; nothing was started.
    """
    connect_to_drive()
    return run_sweep(plan, context, tracker=Tracker(tracking, context.store), print_line=print_line, show=show)
