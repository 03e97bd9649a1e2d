"""Run a search in this process, one trial at a time: for a single machine, for debugging, and as the reference for Tune."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from functools import partial

from sentdist.learning.checkpoint import DevScore
from sentdist.learning.loop import StepReport
from sentdist.recipe.stage import Stage, topological
from sentdist.recipe.stages import Rung, to_share
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.run.events import progress_event
from sentdist.run.searching.conductor import Conductor, ToRun, Watch
from sentdist.run.searching.suggesters import TunedSuggester
from sentdist.stages.context import Context
from sentdist.stages.devices import check_precisions, left_out_here, old_gpu_here, on_this_machine
from sentdist.stages.local import build_all
from sentdist.stages.rung_records import rung_score
from sentdist.stages.train import TrainSession
from sentdist.store.searches import SearchRecord
from sentdist.store.store import Artifact
from sentdist.text import PrintLine
from sentdist.tracking.tracker import Run, Tracker

LINE_EVERY_S = 30.0  # between two lines of one training


class _TimeIsUp(BaseException):  # not an Exception, which would count as a failure of a trial
    """The budget's hours ended during a training."""


def search_in_process(
    planned: PlannedSearch,
    context: Context,
    *,
    print_line: PrintLine,
    watch: Watch | None = None,
    tracker: Tracker | None = None,
    until: float | None = None,
) -> SearchRecord:
    """Run a search, or resume an interrupted one, and return its record with the finalists, which the caller must train and score.

    Args:
        context: with the `shares` of the search.
        watch: see `Conductor`.
        tracker: takes the curves of the trainings.
        until: see `Conductor`.

    Raises:
        RecipeError: the budget is too small for one trial, by earlier speeds or, if unknown, by the first measured one.
        StoreError: the store cannot be written.
    """
    runtime, devices = on_this_machine(context.runtime)
    firsts = [planned.train(method, planned.first(method)) for method in planned.methods]
    check_precisions(firsts, runtime, old_gpu=old_gpu_here(runtime))
    print_line(f"{planned.recipe.name}: search in this process, {devices}{left_out_here(runtime)}")
    context = replace(context, runtime=runtime)
    make = partial(TunedSuggester, suggest=planned.search.suggest, seed=planned.search.seed, first=planned.own_values)
    conductor = Conductor(planned, context, make, print_line=print_line, watch=watch, until=until)
    conductor.begin()
    try:
        while (trial := conductor.next()) is not None:
            run_trial(trial, conductor, print_line, tracker or Tracker())
    except _TimeIsUp:
        conductor.next()  # sets the reason: the hours are spent
    except BaseException:
        conductor.stop()
        raise
    conductor.choose()
    return conductor.record


def run_trial(trial: ToRun, conductor: Conductor, print_line: PrintLine, tracker: Tracker) -> None:
    """Train a trial rung by rung until it finishes, is pruned or fails."""
    listen = _Listener(conductor, print_line, tracker)
    for share in trial.shares:
        stage = to_share(trial.train, share)
        try:
            if rung_score(trial.train, share, conductor.context) is None:
                with closing(listen):
                    build_all(topological((stage,)), conductor.context, listen=listen)
        except Exception as error:
            conductor.fail(trial.number, error)
        else:
            conductor.arrive(trial.number, share)
        print_line(conductor.line(trial.number))
        if conductor.trial(trial.number).state != "running":
            return


class _Listener:
    """Prints progress of a long training, sends its curve to the tracker, ends it when the budget's hours are over."""

    def __init__(self, conductor: Conductor, print_line: PrintLine, tracker: Tracker) -> None:
        self._tracker = tracker
        self._session: TrainSession | None = None
        self._run = Run()
        self._conductor = conductor
        self._print_line = print_line
        self._last = time.monotonic()

    def __call__(self, stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> None:
        if self._conductor.hours_left == 0.0 and not _is_ending(stage, session, event):
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


def _is_ending(stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> bool:
    """Whether a stage is finished, or only its dev score is left, so that ending it would save no time."""
    if session is None or isinstance(event, Artifact):
        return isinstance(event, Artifact)
    return session.has_stepped_to(stage.share if isinstance(stage, Rung) else 1.0)
