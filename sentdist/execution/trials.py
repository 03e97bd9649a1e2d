"""The trials of a sweep in Ray Tune: which run at once, what each says, which failed."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyarrow import fs
from ray import tune

from sentdist.errors import SweepStopped
from sentdist.execution.board import Board, cause_of
from sentdist.execution.running import RUNNING, store_place
from sentdist.execution.stage_board import Body, stopped
from sentdist.execution.submission import Submission
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Trial

# Whatever waits reserves no CPU, or trials would starve the work they wait for: two workers of one CPU each find no place on two CPUs of
# which a trial holds 0.01. Tune refuses a trial that reserves nothing at all, so it reserves a little of what is not scarce.
TRIAL_RESOURCES = {"memory": float(2**20)}

STOPPED = "sweep_stopped"  # what a trial reports when somebody has stopped the sweep


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended; `error` as it was raised where it happened, None if the trial has scores."""

    key: str
    name: str
    error: BaseException | None = None

    @property
    def message(self) -> str:
        """Kind and text of the error."""
        return "" if self.error is None else f"{type(self.error).__name__}: {self.error}"


def run_trials(
    trials: Sequence[Trial], submission: Submission, body: Body, *, at_once: int, speak: Callable[[str], None]
) -> dict[str, Outcome]:
    """Run trials in Tune, first come first served, `at_once` at a time; how each ended, by key.

    Tune gives concurrency and the place for a scheduler. The truth is the store: nothing is read back from Tune's own files.
    """
    _quieten()
    filesystem, storage = store_place(submission.context.store, RUNNING)
    name = f"tune-{uuid.uuid4().hex[:12]}"
    by_key = {trial.key: trial for trial in trials}
    callbacks: list[tune.Callback] = [_TrialLines(by_key, speak)]
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(_run_trial, trials=by_key, submission=submission, body=body), TRIAL_RESOURCES),
        param_space={"trial": tune.grid_search(list(by_key))},
        tune_config=tune.TuneConfig(max_concurrent_trials=at_once, reuse_actors=True),
        run_config=tune.RunConfig(
            name=name, storage_path=storage, storage_filesystem=filesystem, verbose=0, callbacks=callbacks, stop=_UntilStopped()
        ),
    )
    try:
        results = tuner.fit()
    finally:
        if filesystem.get_file_info(f"{storage}/{name}").type == fs.FileType.Directory:
            filesystem.delete_dir(f"{storage}/{name}")
    errors, was_stopped = {}, False
    for number in range(len(results)):
        result = results[number]
        if result.error is not None:
            errors[str((result.config or {})["trial"])] = cause_of(result.error)
        was_stopped = was_stopped or bool((result.metrics or {}).get(STOPPED))
    unfinished = stopped(submission.sweep) if was_stopped else RuntimeError("Tune ended without having run this trial to its end")
    outcomes = {}
    for key, trial in by_key.items():
        is_done = key in errors or submission.context.store.has(trial.scores)
        outcomes[key] = Outcome(key=key, name=trial.name, error=errors.get(key) if is_done else unfinished)
    return outcomes


def _run_trial(config: dict[str, str], trials: dict[str, Trial], submission: Submission, body: Body) -> None:
    """One trial, in an actor that only waits: its stages are built where the board puts them; its dev scores reach Tune as they come."""
    trial = trials[config["trial"]]
    board = Board(submission, body)
    train = trial.scores.encoder
    try:
        for event in board.follow(trial.scores):
            if event.what == "dev" and isinstance(train, Train) and event.key == train.key:
                tune.report({"step": event.step, "dev_score": event.score})
    except SweepStopped:
        tune.report({STOPPED: True})
        return
    finally:
        board.part()
    found = submission.context.store.get(trial.scores)
    assert found is not None, "a trial that was followed to its end has scores"
    tune.report({name: value for name, value in found.record.results.items() if isinstance(value, int | float)})


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
    """Says how a trial ended, in place of Tune's table."""

    def __init__(self, trials: dict[str, Trial], speak: Callable[[str], None]) -> None:
        self._trials = trials
        self._speak = speak
        self._num_done = 0

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        known = self._trials[trial.config["trial"]]
        if not any(task.name in trial.last_result for task in known.scores.tasks):  # the sweep was stopped
            return
        scores = ", ".join(
            f"{task.name} {trial.last_result[task.name]:.2f}" for task in known.scores.tasks if task.name in trial.last_result
        )
        self._say(f"{known.name}: {scores}")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._say(f"{self._trials[trial.config['trial']].name}: FAILED")

    def _say(self, text: str) -> None:
        self._num_done += 1
        self._speak(f"trial {self._num_done}/{len(self._trials)}  {text}")


def _quieten() -> None:
    """Tune speaks of its files and prints stack traces of failed trials; here the driver speaks, and the summary has the errors."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["TUNE_PRINT_ALL_TRIAL_ERRORS"] = "0"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # it would end the sweep as if nothing had happened
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
