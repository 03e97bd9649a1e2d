"""A plan built in this process, with the lines of progress that a cluster prints."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from sentdist.errors import SentdistError, counted, named
from sentdist.execution.board.events import StageEvent, progress_event
from sentdist.execution.disk_estimate import disk_estimate
from sentdist.execution.progress import Show, SweepProgress, progress_of
from sentdist.execution.sweep_end import SweepSummary, TrialOutcome, overlaps_not_counted
from sentdist.plan.stage import Stage
from sentdist.plan.unroll import Plan
from sentdist.print_line import PrintLine
from sentdist.stages.context import Context
from sentdist.stages.local import build_past_failures
from sentdist.stages.overlaps import build_overlaps
from sentdist.stages.precisions import check_precisions
from sentdist.store.store import Artifact
from sentdist.store.sweep import begin_sweep, sweep_record

if TYPE_CHECKING:
    from sentdist.learning.checkpoint import DevScore
    from sentdist.learning.loop import StepReport
    from sentdist.stages.train import TrainSession
    from sentdist.stages.train_here import Listener


def build_locally(plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
    """Build all trials of a plan in this process and note them as a sweep; print_line takes each line of progress, show all of it.

    Trials that fail do not stop the others; they stand in the summary.

    Raises:
        SentdistError: what concerns all trials: a device that is not there, a store that must be written and cannot, or has no room.
    """
    started = time.perf_counter()
    before = context.store.get_all(plan.stages).keys()
    missing = frozenset(stage.key for stage in plan.stages) - before
    estimate = disk_estimate(plan, context, missing)
    if missing:  # a complete store may be read-only
        context.store.check_writable(needed_bytes=estimate.least)
        context = _with_devices(plan, context, missing, print_line)
    if warning := estimate.warning(context.store.free_bytes()):
        print_line(warning)
    begin_sweep(context.store, sweep_record(plan), print_line)
    progress = progress_of(plan, missing)

    def failed(stage: Stage, error: SentdistError) -> None:
        print_line(progress.line(StageEvent.of(stage, "failed", message=named(error))))

    errors = build_past_failures(plan.stages, context, listen=local_listener(progress, print_line, show=show), failed=failed)
    try:
        build_overlaps(plan, context)
    except SentdistError as error:  # the sweep is over, and its summary is still to be printed
        print_line(overlaps_not_counted(error))
    outcomes = {trial.key: TrialOutcome(key=trial.key, name=trial.name, error=errors.get(trial.key)) for trial in plan.trials}
    summary = SweepSummary.of(plan, context.store, before, outcomes, time.perf_counter() - started)
    for line in summary.lines if summary.failures else ():
        print_line(line)
    return summary


def _with_devices(plan: Plan, context: Context, missing: frozenset[str], print_line: PrintLine) -> Context:
    from sentdist.stages.devices import left_out_here, old_gpu_here, on_this_machine  # torch takes seconds

    runtime, devices = on_this_machine(context.runtime)
    check_precisions((stage for stage in plan.stages if stage.key in missing), runtime, old_gpu=old_gpu_here(runtime))
    print_line(f"{plan.recipe.name}: {counted(len(missing), 'stage')} to build in this process, {devices}{left_out_here(runtime)}")
    return replace(context, runtime=runtime)


def local_listener(progress: SweepProgress, print_line: PrintLine, *, show: Show | None = None) -> Listener:
    """A listener for what is built in this process: it says every tenth of a training, every dev score and every finished stage."""

    def listen(stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> None:
        reported = progress_event(stage, session, event)
        if reported is not None:
            print_line(progress.line(reported))
            if show is not None:
                show(progress)

    return listen
