"""The trials of a sweep in Ray Tune: which run at once, what each says, which failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from sentdist.errors import ResourceError
from sentdist.execution.board.client import BoardClient
from sentdist.execution.board.event_sink import Body
from sentdist.execution.board.submission import Submission, stopped
from sentdist.execution.sweep_end import TrialOutcome
from sentdist.execution.tune_run import STOPPED, lost_too_often, report_end, run_in_tune, take_failure
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Trial
from sentdist.print_line import PrintLine


def run_trials(
    trials: Sequence[Trial], submission: Submission, body: Body, *, at_once: int, print_line: PrintLine
) -> dict[str, TrialOutcome]:
    """Run trials in Tune, first come first served, `at_once` at a time; how each ended, by key.

    Tune gives concurrency and the place for a scheduler. The truth is the store: nothing is read back from Tune's own files,
    and without room for them the trials that have scores still count.
    """
    by_key = {trial.key: trial for trial in trials}
    lines = _TrialLines(by_key, print_line)
    config = tune.TuneConfig(search_alg=_Listed(trials), num_samples=len(by_key), max_concurrent_trials=at_once, reuse_actors=True)
    shared = {"trials": by_key, "submission": submission, "body": body}
    unfinished: BaseException = RuntimeError("Tune ended without having run this trial")
    try:
        run_in_tune(submission.sweep, submission.context.store, _run_trial, shared, config, stop=_UntilStopped(), callbacks=[lines])
    except ResourceError as trouble:
        unfinished = trouble
    if lines.was_stopped:
        unfinished = stopped(submission.sweep)
    outcomes = {}
    for key, trial in by_key.items():
        error = lines.errors.get(key)
        if error is None and not submission.context.store.has(trial.scores):
            error = unfinished
        outcomes[key] = TrialOutcome(key=key, name=trial.name, error=error)
    return outcomes


def _run_trial(config: dict[str, str], trials: dict[str, Trial], submission: Submission, body: Body) -> None:
    """One trial, in an actor that only waits: its stages are built where the board puts them; its dev scores reach Tune as they come."""
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
        error = take_failure(trial, result)
        if error is not None:
            self.errors[trial.config["trial"]] = error
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
