"""Run the trials of a sweep or search in Ray Tune: a trial only waits for the board and reports dev scores."""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import tune
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sentdist.errors import ResourceError, StoreError, SweepStopped, named
from sentdist.recipe.stages import Train, to_share
from sentdist.recipe.unroll import Trial
from sentdist.run.client import BoardClient
from sentdist.run.connection import cause_of
from sentdist.run.orders import build_stage
from sentdist.run.progress import TrialOutcome
from sentdist.run.submissions import Body, Submission, stopped
from sentdist.stages.rung_records import RungScore, rung_score
from sentdist.store.local_storage import scratch_folder
from sentdist.store.store import ArtifactStore
from sentdist.text import PrintLine, without_secrets

if TYPE_CHECKING:
    from sentdist.run.search import SearchRun


class TrialProcesses(tune.Callback):
    """Knows the processes of the started trials, to end them.

    Tune does so when it is done, or after an Exception, but not when SIGTERM or Ctrl-C ends the driver (SystemExit, KeyboardInterrupt):
    a trial would then find its board gone, open another, and build stages for no driver.
    """

    def __init__(self) -> None:
        self._actors: set[ray.actor.ActorHandle] = set()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._actors.add(trial.temporary_state.ray_actor)  # kept here: between two trials Tune's actor belongs to none

    @contextmanager
    def ended_on_leaving(self) -> Iterator[None]:
        """End the trials' processes when Tune's run ends for any reason."""
        try:
            yield
        finally:
            for actor in self._actors:
                ray.kill(actor)  # no effect on an ended one


log = logging.getLogger(__name__)

# A process that waits reserves no CPU, or trials would starve the work they wait for: two workers of one CPU each do not fit on two CPUs
# if a trial holds 0.01. Tune refuses a trial that reserves nothing at all, so it reserves a little memory.
TRIAL_RESOURCES = {"memory": float(2**20)}

STOPPED = "sweep_stopped"  # reported by a trial when the sweep was stopped
FAILURE = "failure"  # reported by a trial when a stage failed: the error, pickled
TUNE = "tune"  # folder of the store with Tune's files of each sweep and search
LOST_ACTORS = 3  # how often the process of a trial may be lost; it only waits, so another can go on


def run_in_tune(
    name: str,
    store: ArtifactStore,
    trial: Callable[..., None],
    shared: Mapping[str, Any],
    config: tune.TuneConfig,
    *,
    stop: tune.Stopper,
    callbacks: Sequence[tune.Callback] = (),
) -> None:
    """Run trials until the searcher of `config` has no more. Tune's files are written to this machine's scratch disk, then to the store.

    Args:
        trial: called with its config and, by name, with `shared`.

    Raises:
        ResourceError: Tune itself failed, for example for lack of disk space.
    """
    _quieten()
    scratch, processes = Path(tempfile.gettempdir()), TrialProcesses()
    try:
        with scratch_folder(scratch, "tune") as folder, processes.ended_on_leaving():
            tune.Tuner(
                tune.with_resources(tune.with_parameters(trial, **shared), TRIAL_RESOURCES),
                tune_config=config,
                run_config=tune.RunConfig(
                    name=name,
                    storage_path=str(folder),
                    verbose=0,
                    callbacks=[*callbacks, processes],
                    stop=stop,
                    failure_config=tune.FailureConfig(max_failures=LOST_ACTORS),
                ),
            ).fit()
            _keep(store, folder / name, name)
    except (OSError, tune.TuneError, EOFError) as error:
        raise ResourceError(
            where=str(scratch),
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            expected="a scratch folder in which Ray Tune can write its files",
            remedy="Free space there, or set another folder with TMPDIR. What is finished is kept; submit again.",
        ) from error


@contextmanager
def report_end(board: BoardClient) -> Iterator[None]:
    """Report a stop or a failure of a trial from its actor, then leave the board."""
    try:
        yield
    except SweepStopped:
        tune.report({STOPPED: True})
    except Exception as error:
        tune.report({FAILURE: _packed(cause_of(error))})  # in memory: Tune writes only the text of a raised error, to a file
        raise
    finally:
        board.unregister()


def take_failure(trial: Any, result: Mapping[str, Any]) -> BaseException | None:
    """Return the error that a trial reported, or None; after an error Tune does not try the trial again."""
    if FAILURE not in result:
        return None
    trial.max_failures = 0  # the error that it raises next is not a lost process
    error: BaseException = pickle.loads(base64.b64decode(result[FAILURE]))
    return error


def lost_too_often(trial: str) -> ResourceError:
    """Return the error of a trial whose process is not started again."""
    return ResourceError(
        where=trial,
        found=f"that its process was lost {LOST_ACTORS + 1} times",
        expected="nodes that stay",
        remedy="Check the nodes with `ray status`. What is finished is kept; submit again.",
    )


def _packed(error: BaseException) -> str:
    """An error as a value that a trial can report: it reaches the driver in memory, even if the disk for Tune's files is full."""
    try:
        return base64.b64encode(pickle.dumps(error)).decode()
    except Exception:  # it cannot be pickled
        return base64.b64encode(pickle.dumps(RuntimeError(named(error)))).decode()


def _quieten() -> None:
    """Silence Tune, which prints its files and stack traces of failed trials: here the driver prints, and the summary has the errors."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["TUNE_PRINT_ALL_TRIAL_ERRORS"] = "0"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # it would end the sweep as if nothing had happened
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)


def _keep(store: ArtifactStore, folder: Path, name: str) -> None:
    """Copy Tune's files to `tune/NAME` in the store, for `tune.Tuner.restore` and `ResultGrid`. A failure is only logged."""
    try:
        store.files.write_folder(folder, f"{TUNE}/{name}")
    except (OSError, StoreError) as error:
        log.warning("%s/%s/%s: Tune's own files could not be kept: %s", store.shown, TUNE, name, without_secrets(str(error)))


def run_trials(
    trials: Sequence[Trial], submission: Submission, body: Body, *, at_once: int, print_line: PrintLine
) -> dict[str, TrialOutcome]:
    """Run trials in Tune in their order, `at_once` at a time; return how each ended, by key.

    Tune gives concurrency and a place for a scheduler. Results are read from the store only: without room for Tune's files the trials
    that have scores still count.
    """
    by_key = {trial.key: trial for trial in trials}
    lines, stopper = _TrialLines(by_key, print_line), _Stopper()
    configs = map(config_of, trials)
    search = _Asked(lambda: next(configs, None))
    config = tune.TuneConfig(search_alg=search, num_samples=len(by_key), max_concurrent_trials=at_once, reuse_actors=True)
    shared = {"trials": by_key, "submission": submission, "body": body}
    unfinished: BaseException = RuntimeError("Tune ended without having run this trial")
    try:
        run_in_tune(submission.sweep, submission.context.store, _run_trial, shared, config, stop=stopper, callbacks=[lines])
    except ResourceError as trouble:
        unfinished = trouble
    if stopper.was_stopped:
        unfinished = stopped(submission.sweep)
    outcomes = {}
    for key, trial in by_key.items():
        error = lines.errors.get(key)
        if error is None and not submission.context.store.has(trial.scores):
            error = unfinished
        outcomes[key] = TrialOutcome(key=key, name=trial.name, error=error)
    return outcomes


def _run_trial(config: dict[str, str], trials: dict[str, Trial], submission: Submission, body: Body) -> None:
    """One trial, in an actor that only waits: the board decides where its stages are built; its dev scores are reported to Tune."""
    trial = trials[config["trial"]]
    board = BoardClient(submission, body)
    train = trial.scores.encoder
    with report_end(board):
        for event in board.follow(trial.scores):
            if event.what == "dev" and isinstance(train, Train) and event.key == train.key:
                tune.report({"step": event.step, "dev_score": event.score})
        found = submission.context.store.get(trial.scores)
        assert found is not None, "a trial that was followed to its end has scores"
        tune.report({name: value for name, value in found.record.results.items() if isinstance(value, int | float)})


class _Asked(Searcher):
    """Gives Tune the configs of trials from a function; None ends the search."""

    def __init__(self, ask: Callable[[], dict[str, Any] | None]) -> None:
        super().__init__()  # without a metric: Tune would refuse what a trial reports of an error
        self._ask = ask

    def suggest(self, trial_id: str) -> Any:
        return self._ask() or Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None: ...

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: all that is needed to resume is in the store."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a copy with its files; nothing is read from that


def config_of(trial: Trial) -> dict[str, Any]:
    """Return a trial's values as Tune's config: method, swept fields by name and value, seed, fold, and the key."""
    return {"trial": trial.key, "method": trial.method, "seed": trial.seed, "fold": trial.fold, **dict(trial.params)}


class _Stopper(tune.Stopper):
    """Ends Tune's run with the first trial that reports a stopped sweep (the others would report the same), or when `is_over`."""

    def __init__(self, is_over: Callable[[], bool] = lambda: False) -> None:
        self._is_over = is_over
        self.was_stopped = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.was_stopped = self.was_stopped or STOPPED in result
        return self.was_stopped

    def stop_all(self) -> bool:
        return self.was_stopped or self._is_over()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # as above


class _TrialLines(tune.Callback):
    """Prints how each trial ended, in place of Tune's table, and keeps the errors by key."""

    def __init__(self, trials: dict[str, Trial], print_line: PrintLine) -> None:
        self._trials = trials
        self._print_line = print_line
        self._num_done = 0
        self.errors: dict[str, BaseException] = {}

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        error = take_failure(trial, result)
        if error is not None:
            self.errors[trial.config["trial"]] = error

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        known = self._trials[trial.config["trial"]]
        if not any(task.name in trial.last_result for task in known.scores.tasks):  # the sweep was stopped
            return
        scores = ", ".join(
            f"{task.name} {trial.last_result[task.name]:.2f}" for task in known.scores.tasks if task.name in trial.last_result
        )
        self._print_end(f"{known.name}: {scores}")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        known = self._trials[trial.config["trial"]]
        self.errors.setdefault(trial.config["trial"], lost_too_often(known.name))
        self._print_end(f"{known.name}: FAILED")

    def _print_end(self, text: str) -> None:
        self._num_done += 1
        self._print_line(f"trial {self._num_done}/{len(self._trials)}  {text}")


SHARE, RUNG_SCORE = "share", "rung_score"  # reported at a rung; the score as text, because Tune would flatten a mapping
NO_END = 2**31  # trials: the search says when there are no more


@dataclass(frozen=True)
class _Training:
    """A training in Tune's config; as text, which Tune's tables show, its key."""

    stage: Train

    def __str__(self) -> str:
        return self.stage.key


def run_search(run: SearchRun, submission: Submission, *, at_once: int) -> None:
    """Run the trials of a search in Tune until it has no more; Tune's files are kept in the store.

    Raises:
        SweepStopped: by `sentdist stop`; submitted again, the search goes on.
    """
    name = submission.sweep
    scheduler = _SearchScheduler(run)
    stopper = _Stopper(lambda: run.is_time_up or scheduler.broken is not None)

    def ask() -> dict[str, Any] | None:
        asked = run.ask()
        if asked is None:
            return None
        about = {"trial": asked.number, "method": asked.method, "seed": asked.train.seed, "training": _Training(asked.train)}
        return about | dict(asked.suggestion)

    config = tune.TuneConfig(
        search_alg=_Asked(ask), scheduler=scheduler, num_samples=NO_END, max_concurrent_trials=at_once, reuse_actors=True
    )
    # `ExperimentAnalysis` and `ResultGrid` read what these write.
    read_later = [JsonLoggerCallback(), CSVLoggerCallback()]
    board = BoardClient(submission, build_stage)
    try:
        run_in_tune(
            name, submission.context.store, _run_search_trial, {"submission": submission}, config, stop=stopper, callbacks=read_later
        )
    finally:
        board.leave()
    if stopper.was_stopped:
        raise stopped(name, goes_on="the search goes on where it was")
    if scheduler.broken is not None:
        raise scheduler.broken


class _SearchScheduler(FIFOScheduler):
    """Reports rungs and failures of trials to the search, and ends pruned trials. broken: an error of the search, which ends it."""

    def __init__(self, run: SearchRun) -> None:
        super().__init__()
        self._run = run
        self._failed: dict[int, BaseException] = {}
        self.broken: BaseException | None = None

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        number = int(trial.config["trial"])
        error = take_failure(trial, result)
        if error is not None:
            self._failed[number] = error
        if SHARE not in result:
            return str(TrialScheduler.CONTINUE)
        try:
            goes_on = self._run.arrive(number, float(result[SHARE]), RungScore(**json.loads(result[RUNG_SCORE])))
        except Exception as broken:
            self.broken = broken
            goes_on = False
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        number = int(trial.config["trial"])
        try:
            self._run.fail(number, self._failed.get(number) or lost_too_often(f"trial {number}"))
        except Exception as broken:
            self.broken = broken

    def __getstate__(self) -> dict[str, Any]:
        return {}  # as above


def _run_search_trial(config: dict[str, Any], submission: Submission) -> None:
    """One trial of a search, in an actor that only waits: builds its rungs through the board, and reports the score of each."""
    train, context = config["training"].stage, submission.context
    board = BoardClient(submission, build_stage)
    with report_end(board):
        for share in context.shares:
            while (found := rung_score(train, share, context)) is None:  # again if another search has removed it meanwhile
                for _ in board.follow(to_share(train, share)):
                    pass
            score = float("nan") if found.dev is None else found.dev
            tune.report({"dev_score": score, SHARE: share, RUNG_SCORE: json.dumps(asdict(found))})
