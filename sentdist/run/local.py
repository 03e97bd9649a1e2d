"""Build plans and run searches in this process, one stage after another."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sentdist.errors import SentdistError, counted, named
from sentdist.recipe.stage import Stage, topological
from sentdist.recipe.stages import to_share
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.recipe.unroll import Plan
from sentdist.run.events import StageEvent, progress_event
from sentdist.run.progress import Show, SweepSummary, TrialOutcome, check_space, overlaps_not_counted, progress_of
from sentdist.stages.context import Context
from sentdist.stages.fit import check_precisions, left_out_here, old_gpu_here, on_this_machine
from sentdist.stages.local import build_all, build_past_failures
from sentdist.stages.rung_records import rung_score
from sentdist.stages.text_stages import build_overlaps
from sentdist.store.searches import SearchRecord
from sentdist.store.store import Artifact
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.text import PrintLine
from sentdist.tracking.tracker import Run, Tracker

if TYPE_CHECKING:
    from sentdist.learning.checkpoint import DevScore
    from sentdist.learning.loop import StepReport
    from sentdist.run.search import SearchRun
    from sentdist.stages.train import TrainSession


def build_locally(plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
    """Build all trials of a plan in this process and record them as a sweep. Failed trials do not stop the others.

    Args:
        print_line: takes each line of progress.
        show: takes the progress as a whole.

    Raises:
        SentdistError: an error that concerns all trials: a missing device, a store that is read-only or too small.
    """
    started = time.perf_counter()
    before = context.store.get_all(plan.stages).keys()
    missing = frozenset(stage.key for stage in plan.stages) - before
    check_space(plan, context, missing)
    if missing:
        context, devices = _with_devices((stage for stage in plan.stages if stage.key in missing), context)
        print_line(f"{plan.recipe.name}: {counted(len(missing), 'stage')} to build in this process, {devices}")
    save_sweep(context.store, sweep_record(plan))
    progress = progress_of(plan, missing)

    def failed(stage: Stage, error: SentdistError) -> None:
        print_line(progress.line(StageEvent.of(stage, "failed", message=named(error))))

    def listen(stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> None:
        reported = progress_event(stage, session, event)
        if reported is not None:
            print_line(progress.line(reported))
            if show is not None:
                show(progress)

    errors = build_past_failures(plan.stages, context, listen=listen, failed=failed)
    try:
        build_overlaps(plan, context)
    except SentdistError as error:  # the sweep is over, and its summary is still to be printed
        print_line(overlaps_not_counted(error))
    outcomes = {trial.key: TrialOutcome(key=trial.key, name=trial.name, error=errors.get(trial.key)) for trial in plan.trials}
    summary = SweepSummary.of(plan, context.store, before, outcomes, time.perf_counter() - started)
    for line in summary.lines if summary.failures else ():
        print_line(line)
    return summary


def _with_devices(stages: Iterable[Stage], context: Context) -> tuple[Context, str]:
    """Return the context with the devices decided, and a phrase on them."""
    runtime, devices = on_this_machine(context.runtime)
    check_precisions(stages, runtime, old_gpu=old_gpu_here(runtime))
    return replace(context, runtime=runtime), f"{devices}{left_out_here(runtime)}"


LINE_EVERY_S = 30.0  # between two lines of one training of a search


class _TimeIsUp(BaseException):  # not an Exception, which would count as a failure of a trial
    """The end of this submission was reached during a training."""


def search_in_process(
    planned: PlannedSearch, context: Context, tracker: Tracker, *, print_line: PrintLine, until: float | None = None
) -> SearchRecord:
    """Run a search, or resume an interrupted one, and return its record with the finalists, which the caller must train and score.

    Args:
        tracker: shows the trials, with the curves of their trainings.
        until: see `SearchRun`.

    Raises:
        StoreError: the store cannot be written.
    """
    from sentdist.run.search import SearchRun  # Optuna takes half a second

    context, devices = _with_devices([planned.train(method, planned.first(method)) for method in planned.methods], context)
    print_line(f"{planned.recipe.name}: search in this process, {devices}")
    search = SearchRun(planned, context, tracker, print_line=print_line, until=until)
    listen = _SearchListener(search, print_line, tracker)
    with suppress(_TimeIsUp):
        while (asked := search.ask()) is not None:
            for share in planned.search.shares:
                try:
                    if rung_score(asked.train, share, context) is None:
                        with closing(listen):
                            build_all(topological((to_share(asked.train, share),)), context, listen=listen)
                except Exception as error:
                    search.fail(asked.number, error)
                    break
                if not search.arrive(asked.number, share):
                    break
    return search.choose()


class _SearchListener:
    """Prints progress of a long training, sends its curve to the tracker, and ends it at the end of the submission."""

    def __init__(self, search: SearchRun, print_line: PrintLine, tracker: Tracker) -> None:
        self._tracker, self._search, self._print_line = tracker, search, print_line
        self._session: TrainSession | None = None
        self._run = Run()
        self._last = time.monotonic()

    def __call__(self, stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> None:
        if self._search.is_time_up and not isinstance(event, Artifact):
            raise _TimeIsUp
        if session is not None:
            if session is not self._session:
                self.close()
                self._session = session
                self._run = self._tracker.begin(session.stage.key)
            self._run.follow(session.history)
        reported = progress_event(stage, session, event)
        if reported is not None and time.monotonic() - self._last > LINE_EVERY_S:
            self._last = time.monotonic()
            self._print_line(reported.line)

    def close(self) -> None:
        """Send the rest of the curve."""
        self._run.close()
