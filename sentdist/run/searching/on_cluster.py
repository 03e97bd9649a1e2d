"""Run a search on a cluster: Ray Tune runs the trials, the conductor decides, stages are built through the board."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import Any

import ray
from ray import tune
from ray.exceptions import GetTimeoutError
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sentdist.errors import ResourceError, counted
from sentdist.recipe.stages import to_share
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.recipe.unroll import Plan
from sentdist.run.build_stage import build_stage
from sentdist.run.client import BoardClient
from sentdist.run.cluster.address import HEAD
from sentdist.run.searching.conductor import Conductor, ToRun, Watch
from sentdist.run.searching.suggesters import SCORE, TunedSuggester
from sentdist.run.submissions import Body, Submission, stopped
from sentdist.run.sweep import GpuWork, allocate, stages_at_once
from sentdist.run.trials import STOPPED, lost_too_often, report_end, run_in_tune, take_failure
from sentdist.stages.context import Context
from sentdist.stages.rung_records import RungScore, rung_score
from sentdist.store.searches import SearchRecord
from sentdist.text import PrintLine
from sentdist.tracking.tracker import Tracker

NUMBER = "trial"  # the field of a trial's config with its number
SHARE = "share"
RUNG_SCORE = "rung_score"  # score at the rung, as text: Tune would flatten a mapping
MAILBOX_S = 600.0  # for a process on the head to start; it takes 40 s on a machine with five times its load
NO_END = 2**31  # trials: the searcher says when there are no more


def search_on_cluster(
    planned: PlannedSearch,
    context: Context,
    *,
    print_line: PrintLine,
    watch: Watch | None = None,
    tracker: Tracker | None = None,
    at_once: int | None = None,
    until: float | None = None,
) -> SearchRecord:
    """Run a search as `search_in_process` does, on the connected cluster.

    Args:
        at_once: trials at the same time; None for as many as fit.
        until: see `Conductor`.

    Raises:
        RecipeError: as `search_in_process`.
        ResourceError: the cluster can never run one training; nothing was started.
        SweepStopped: by `sentdist stop`; submitted again, the search goes on.
        StoreError: the store cannot be written.
    """
    one_of_each = planned.plan([(method, planned.first(method)) for method in planned.methods])
    allocation = allocate(one_of_each, context, frozenset(stage.key for stage in one_of_each.stages), work=_work_of(one_of_each, at_once))
    context = allocation.context
    make = partial(TunedSuggester, suggest=planned.search.suggest, seed=planned.search.seed, first=planned.own_values)
    width = at_once or allocation.capacity.max_concurrent_trials
    conductor = Conductor(planned, context, make, print_line=print_line, watch=watch, at_once=width, until=until)
    conductor.begin()
    print_line(f"{planned.recipe.name}: search, {counted(width, 'trial')} at once, {allocation.devices}; store {context.store.shown}")
    for note in allocation.notes:
        print_line(note)
    try:
        _fit(conductor, allocation.submission(planned.recipe.name, tracker or Tracker()), at_once=width, print_line=print_line)
    except BaseException:
        conductor.stop()
        raise
    conductor.choose()
    return conductor.record


def _work_of(one_of_each: Plan, at_once: int | None) -> GpuWork:
    """The work on GPUs of a search, as far as it is known without the number of trials."""
    going = at_once or one_of_each.recipe.runtime.max_concurrent_trials
    if going is None:
        return GpuWork()
    most = max(stages_at_once(one_of_each.trials, {stage.key for stage in one_of_each.stages}))
    because = f"runtime.max_concurrent_trials={going}" if at_once is None else f"{counted(going, 'trial')} at once"
    return GpuWork(of_trials=going * most, because=because)


def _fit(conductor: Conductor, submission: Submission, *, at_once: int, print_line: PrintLine) -> None:
    """Run trials in Tune until the conductor has no more; Tune's files are kept in the store."""
    name = conductor.planned.recipe.name
    board = BoardClient(submission, build_stage)
    mailbox: Any = ray.remote(num_cpus=0, resources=HEAD)(_TrialMailbox).remote()
    stopper = _ConductorStopper(conductor)
    scheduler = _ConductorScheduler(conductor, stopper, print_line)
    body: Body = build_stage
    config = tune.TuneConfig(
        search_alg=_ConductorSearcher(conductor, mailbox),
        scheduler=scheduler,
        num_samples=NO_END,
        max_concurrent_trials=at_once,
        reuse_actors=True,
    )
    shared = {"mailbox": mailbox, "submission": submission, "body": body}
    # `ExperimentAnalysis` and `ResultGrid` read what these write.
    read_later = [JsonLoggerCallback(), CSVLoggerCallback()]
    try:
        run_in_tune(name, submission.context.store, _run_trial, shared, config, stop=stopper, callbacks=read_later)
    finally:
        board.leave()
        ray.kill(mailbox)
    if stopper.was_stopped:
        conductor.stop()
        raise stopped(name, goes_on="the search goes on where it was")
    if scheduler.broken is not None:
        raise scheduler.broken


class _TrialMailbox:
    """Holds trials until their processes request them: Tune's config contains the suggestion, not the stage."""

    def __init__(self) -> None:
        self._trials: dict[int, ToRun] = {}

    def put(self, trial: ToRun) -> None:
        """Keep a trial, before it is suggested to Tune."""
        self._trials[trial.number] = trial

    def of(self, number: int) -> ToRun:
        """Return a trial by its number."""
        return self._trials[number]


class _ConductorSearcher(Searcher):
    """The conductor as a Tune searcher. The scheduler, which Tune calls first, passes results of trials to the conductor."""

    def __init__(self, conductor: Conductor, mailbox: Any) -> None:
        super().__init__()  # without a metric: Tune would refuse what a trial reports of an error
        self._conductor = conductor
        self._mailbox = mailbox

    def suggest(self, trial_id: str) -> Any:
        trial = self._conductor.next()
        if trial is None:
            return Searcher.FINISHED
        try:
            ray.get(self._mailbox.put.remote(trial), timeout=MAILBOX_S)
        except GetTimeoutError:
            raise ResourceError(
                where="the cluster's head", found=f"no process for the search within {MAILBOX_S:.0f} s",
                expected="room for one that only waits",
                remedy="Check it with `ray status`. What is finished is kept; submit again.",
            ) from None  # fmt: skip
        return {NUMBER: trial.number, "method": trial.method, "seed": trial.train.seed, **trial.suggestion}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None: ...

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the search resumes from the store."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a copy with its own files; nothing is read from that


class _ConductorScheduler(FIFOScheduler):
    """The conductor as a Tune scheduler: records each rung, and ends pruned trials. broken: error of a record; it ends the search."""

    def __init__(self, conductor: Conductor, stopper: _ConductorStopper, print_line: PrintLine) -> None:
        super().__init__()
        self._conductor = conductor
        self._stopper = stopper
        self._print_line = print_line
        self._failed: dict[int, BaseException] = {}
        self.broken: BaseException | None = None

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        number = int(trial.config[NUMBER])
        error = take_failure(trial, result)
        if error is not None:
            self._failed[number] = error
            return str(TrialScheduler.CONTINUE)
        if SHARE not in result:
            return str(TrialScheduler.CONTINUE)
        if result[SHARE] in [rung.share for rung in self._conductor.trial(number).rungs]:  # its process was lost and started over
            return str(TrialScheduler.CONTINUE)
        try:
            goes_on = self._conductor.arrive(number, float(result[SHARE]), RungScore(**json.loads(result[RUNG_SCORE])))
        except Exception as error:
            self.broken = error
            self._stopper.now()
            return str(TrialScheduler.STOP)
        self._print_line(self._conductor.line(number))
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        number = int(trial.config[NUMBER])
        try:
            self._conductor.fail(number, self._failed.get(number) or lost_too_often(f"trial {number}"))
        except Exception as error:  # it cannot be noted
            self.broken = error
            self._stopper.now()
            return
        self._print_line(self._conductor.line(number))

    def __getstate__(self) -> dict[str, Any]:
        return {}  # as above


class _ConductorStopper(tune.Stopper):
    """Ends Tune's run when the search was stopped, when its hours are over, or when it cannot be recorded."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._is_over = False
        self.was_stopped = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.was_stopped = self.was_stopped or STOPPED in result
        return self.was_stopped

    def now(self) -> None:
        """End the search at Tune's next check."""
        self._is_over = True

    def stop_all(self) -> bool:
        if self._conductor.hours_left == 0.0:
            self._conductor.next()  # sets the reason
            return True
        return self._is_over or self.was_stopped

    def __getstate__(self) -> dict[str, Any]:
        return {}  # as above


def _run_trial(config: dict[str, Any], mailbox: Any, submission: Submission, body: Body) -> None:
    """One trial, in an actor that only waits: the board decides where each rung is built; its score is reported."""
    trial: ToRun = ray.get(mailbox.of.remote(config[NUMBER]))
    context = submission.context
    board = BoardClient(submission, body)
    with report_end(board):
        for share in trial.shares:
            while (found := rung_score(trial.train, share, context)) is None:  # again where another search has removed it meanwhile
                for _ in board.follow(to_share(trial.train, share)):
                    pass
            score = float("nan") if found.dev is None else found.dev
            tune.report({SCORE: score, SHARE: share, RUNG_SCORE: json.dumps(asdict(found))})
