"""The trials of a sweep in Ray Tune: which run at once, what each says, which failed."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from sentdist.addresses import without_secrets
from sentdist.errors import ResourceError, StoreError, SweepStopped, named
from sentdist.execution.board.actor import stopped
from sentdist.execution.board.client import BoardClient
from sentdist.execution.board.event_sink import Body
from sentdist.execution.board.submission import Submission
from sentdist.execution.cluster.ray_errors import cause_of
from sentdist.execution.trial_processes import TrialProcesses
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Trial
from sentdist.print_line import PrintLine
from sentdist.store.scratch import scratch_folder
from sentdist.store.store import ArtifactStore

log = logging.getLogger(__name__)

# Whatever waits reserves no CPU, or trials would starve the work they wait for: two workers of one CPU each find no place on two CPUs of
# which a trial holds 0.01. Tune refuses a trial that reserves nothing at all, so it reserves a little of what is not scarce.
TRIAL_RESOURCES = {"memory": float(2**20)}

STOPPED = "sweep_stopped"  # what a trial reports when somebody has stopped the sweep
TUNE = "tune"  # folder of the store with Tune's own files of each sweep and search
FAILURE = "failure"  # what a trial reports when a stage failed: the error, packed
LOST_ACTORS = 3  # how often the process of a trial may be lost; it only waits, so another goes on where it was


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """How a trial ended; `error` as it was raised where it happened, None if the trial has scores."""

    key: str
    name: str
    error: BaseException | None = None

    @property
    def message(self) -> str:
        """Kind and text of the error."""
        return "" if self.error is None else named(self.error)


def run_trials(
    trials: Sequence[Trial], submission: Submission, body: Body, *, at_once: int, print_line: PrintLine
) -> dict[str, TrialOutcome]:
    """Run trials in Tune, first come first served, `at_once` at a time; how each ended, by key.

    Tune gives concurrency and the place for a scheduler. The truth is the store:
    Tune's own files lie on this machine's scratch disk, nothing is read back from them,
    and without room for them the trials that have scores still count.
    """
    quieten()
    by_key = {trial.key: trial for trial in trials}
    lines = _TrialLines(by_key, print_line)
    trouble = _fit(by_key, submission, body, at_once=at_once, lines=lines)
    unfinished = stopped(submission.sweep) if lines.was_stopped else trouble or RuntimeError("Tune ended without having run this trial")
    outcomes = {}
    for key, trial in by_key.items():
        error = lines.errors.get(key)
        if error is None and not submission.context.store.has(trial.scores):
            error = unfinished
        outcomes[key] = TrialOutcome(key=key, name=trial.name, error=error)
    return outcomes


def _fit(by_key: dict[str, Trial], submission: Submission, body: Body, *, at_once: int, lines: _TrialLines) -> ResourceError | None:
    """Have Tune run the trials; what went wrong with Tune itself, None if nothing did."""
    scratch, processes = Path(tempfile.gettempdir()), TrialProcesses()
    try:
        with scratch_folder(scratch, "tune") as folder, processes.ended_on_leaving():
            _tuner(by_key, submission, body, at_once=at_once, callbacks=[lines, processes], scratch=str(folder)).fit()
            keep_experiment(submission.context.store, folder / submission.sweep, submission.sweep)
    except (OSError, tune.TuneError, EOFError) as error:
        return scratch_trouble(scratch, error)
    return None


def scratch_trouble(scratch: Path, error: BaseException) -> ResourceError:
    """What is told when Tune itself failed."""
    return ResourceError(
        where=str(scratch),
        found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
        expected="a scratch folder in which Ray Tune can keep its own files",
        remedy="Free room there, or name another folder with TMPDIR. What is finished is kept; submit again.",
    )


def _tuner(
    by_key: dict[str, Trial], submission: Submission, body: Body, *, at_once: int, callbacks: list[tune.Callback], scratch: str
) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(_run_trial, trials=by_key, submission=submission, body=body), TRIAL_RESOURCES),
        tune_config=tune.TuneConfig(
            search_alg=_Listed(list(by_key.values())), num_samples=len(by_key), max_concurrent_trials=at_once, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name=submission.sweep,
            storage_path=scratch,
            verbose=0,
            callbacks=callbacks,
            stop=_UntilStopped(),
            failure_config=tune.FailureConfig(max_failures=LOST_ACTORS),
        ),
    )


def _run_trial(config: dict[str, str], trials: dict[str, Trial], submission: Submission, body: Body) -> None:
    """One trial, in an actor that only waits: its stages are built where the board puts them; its dev scores reach Tune as they come."""
    trial = trials[config["trial"]]
    board = BoardClient(submission, body)
    train = trial.scores.encoder
    try:
        for event in board.follow(trial.scores):
            if event.what == "dev" and isinstance(train, Train) and event.key == train.key:
                tune.report({"step": event.step, "dev_score": event.score})
    except SweepStopped:
        tune.report({STOPPED: True})
        return
    except Exception as error:
        tune.report({FAILURE: packed(cause_of(error))})  # in memory: of what is raised Tune keeps the text, in a file
        raise
    finally:
        board.unregister()
    found = submission.context.store.get(trial.scores)
    assert found is not None, "a trial that was followed to its end has scores"
    tune.report({name: value for name, value in found.record.results.items() if isinstance(value, int | float)})


class _Listed(Searcher):
    """A grid's trials in their order, as Tune's tables show them: method, swept fields by name and value, seed, fold, and the key."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__()
        self._left = [config_of(trial) for trial in reversed(trials)]

    def suggest(self, trial_id: str) -> Any:
        return self._left.pop() if self._left else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None: ...

    def save(self, checkpoint_path: str) -> None:
        """Nothing: what is finished is in the store."""


def config_of(trial: Trial) -> dict[str, Any]:
    """A trial's values as Tune has them."""
    return {"trial": trial.key, "method": trial.method, "seed": trial.seed, "fold": trial.fold, **dict(trial.params)}


class _UntilStopped(tune.Stopper):
    """Ends Tune's run with the first trial that says that the sweep was stopped; the others would only say the same, one by one."""

    def __init__(self) -> None:
        self._is_stopped = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._is_stopped = self._is_stopped or STOPPED in result
        return self._is_stopped

    def stop_all(self) -> bool:
        return self._is_stopped


class _TrialLines(tune.Callback):
    """Says how a trial ended, in place of Tune's table, and keeps the errors.

    errors: by key, as they were raised where it happened; of trials whose actor was lost again and again, what Tune says of it.
    """

    def __init__(self, trials: dict[str, Trial], print_line: PrintLine) -> None:
        self._trials = trials
        self._print_line = print_line
        self._num_done = 0
        self.errors: dict[str, BaseException] = {}
        self.was_stopped = False

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        if FAILURE in result:
            self.errors[trial.config["trial"]] = unpacked(result[FAILURE])
            trial.max_failures = 0  # what it raises next is no lost process: Tune does not try it again
        self.was_stopped = self.was_stopped or STOPPED in result

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


def lost_too_often(trial: str) -> ResourceError:
    """The error of a trial whose process is not begun once more."""
    return ResourceError(
        where=trial,
        found=f"that its process was lost {LOST_ACTORS + 1} times",
        expected="nodes that stay",
        remedy="Look at the nodes with `ray status`. What is finished is kept; submit again.",
    )


def packed(error: BaseException) -> str:
    """An error as a value that a trial can report: it reaches the driver in memory, where a file of Tune's may find no room."""
    try:
        return base64.b64encode(pickle.dumps(error)).decode()
    except Exception:  # it holds something that cannot travel
        return base64.b64encode(pickle.dumps(RuntimeError(named(error)))).decode()


def unpacked(packed: str) -> BaseException:
    """What `packed` made of an error."""
    error: BaseException = pickle.loads(base64.b64decode(packed))
    return error


def quieten() -> None:
    """Tune speaks of its files and prints stack traces of failed trials; here the driver speaks, and the summary has the errors."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["TUNE_PRINT_ALL_TRIAL_ERRORS"] = "0"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # it would end the sweep as if nothing had happened
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)


def keep_experiment(store: ArtifactStore, folder: Path, name: str) -> None:
    """Copy what Tune has written of its run beside the sweep, at `tune/NAME`: `tune.Tuner.restore` and `ResultGrid` open it there.

    What cannot be copied is told of: the store has the results that count.
    """
    try:
        store.write_folder(folder, f"{TUNE}/{name}")
    except (OSError, StoreError) as error:
        log.warning("%s/%s/%s: Tune's own files could not be kept: %s", store.shown, TUNE, name, without_secrets(str(error)))
