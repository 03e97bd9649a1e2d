"""The trials of a sweep or search as Tune has them: order, width, what each reports, how they end. Tune and the board are stood in for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray import tune

from sentdist.errors import ResourceError, SweepStopped
from sentdist.execution import trials
from sentdist.execution import trials as trial_processes
from sentdist.execution import trials as tune_run
from sentdist.execution.board.submissions import Submission
from sentdist.execution.trials import LOST_ACTORS, STOPPED, report_end, run_in_tune, take_failure
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(small_recipe())


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    return Submission(context=Context(store=ArtifactStore(tmp_path / "store")), sweep="mine")


def _run(
    plan: Plan, submission: Submission, monkeypatch: pytest.MonkeyPatch, does: Callable[..., None] = lambda *_, **__: None
) -> tuple[dict[str, Any], list[str], tune.TuneConfig]:
    lines: list[str] = []
    configs: list[tune.TuneConfig] = []

    def run(name: str, store: ArtifactStore, trial: Any, shared: Any, config: tune.TuneConfig, *, stop: Any, callbacks: Any) -> None:
        assert (name, store) == ("mine", submission.context.store)
        configs.append(config)
        does(callbacks[0])

    monkeypatch.setattr(trials, "run_in_tune", run)
    outcomes = trials.run_trials(plan.trials, submission, Mock(), at_once=3, print_line=lines.append)
    return outcomes, lines, configs[0]


def test_trials_begin_in_the_order_of_the_plan_and_no_more_at_once_than_there_is_room_for(
    plan: Plan, submission: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, config = _run(plan, submission, monkeypatch)
    search: Any = config.search_alg
    suggested = [search.suggest(str(number)) for number in range(len(plan.trials))]
    assert [one["trial"] for one in suggested] == [trial.key for trial in plan.trials]
    assert search.suggest("") == search.FINISHED
    assert config.max_concurrent_trials == 3 and config.num_samples == len(plan.trials)


def _trial(plan: Plan, number: int, **reported: Any) -> Any:
    return SimpleNamespace(config=trials.config_of(plan.trials[number]), last_result=reported, max_failures=LOST_ACTORS)


def test_each_trial_without_scores_has_an_error(plan: Plan, submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    store, scored = submission.context.store, plan.trials[0].scores
    with store.staged() as folder:
        (folder / "data").write_text("")
        store.commit(scored, folder, seconds=0.0, runtime={}, environment={}, results={})

    def ends(lines: Any) -> None:
        task = scored.tasks[0].name
        lines.on_trial_complete(0, [], _trial(plan, 0, **{task: 81.234}))
        lines.on_trial_error(0, [], _trial(plan, 1))

    outcomes, lines, _ = _run(plan, submission, monkeypatch, ends)
    first, second, *others = (outcomes[trial.key].error for trial in plan.trials)
    assert first is None and isinstance(second, ResourceError) and "lost 4 times" in str(second)
    assert others and {str(error) for error in others} == {"Tune ended without having run this trial"}
    assert lines[0].startswith(f"trial 1/{len(plan.trials)}  {plan.trials[0].name}: ") and " 81.23" in lines[0]
    assert lines[1:] == [f"trial 2/{len(plan.trials)}  {plan.trials[1].name}: FAILED"]


def test_trials_of_a_sweep_that_was_stopped_were_stopped(plan: Plan, submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, lines, _ = _run(plan, submission, monkeypatch, lambda lines: lines.on_trial_result(0, [], _trial(plan, 0), {STOPPED: True}))
    assert not lines and all(isinstance(outcome.error, SweepStopped) for outcome in outcomes.values())


def test_a_trial_tells_tune_of_its_own_training_alone(plan: Plan, submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler judges a trial by what it reports: dev scores of the regulators that it shares with others are none of them."""
    trial = next(one for one in plan.trials if getattr(one.scores.encoder, "banks", ()))
    events = [
        SimpleNamespace(what="dev", key=key, step=step, score=10.0 * step)
        for key, step in (("of another", 1), (trial.scores.encoder.key, 2))
    ]
    board = Mock(follow=lambda stage: [*events, SimpleNamespace(what="step", key=trial.scores.encoder.key, step=3)])
    monkeypatch.setattr(trials, "BoardClient", lambda *_: board)
    monkeypatch.setattr(trials, "report_end", lambda board: nullcontext())
    shown: list[dict[str, float]] = []
    monkeypatch.setattr(tune, "report", shown.append)
    store = submission.context.store
    with store.staged() as folder:
        (folder / "data").write_text("")
        store.commit(trial.scores, folder, seconds=0.0, runtime={}, environment={}, results={"stsb": 81.0, "chosen": "by dev"})
    trials._run_trial({"trial": trial.key}, {trial.key: trial}, submission, Mock())
    assert shown == [{"step": 2, "dev_score": 20.0}, {"stsb": 81.0}]


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mock:
    """Tune's own class, which does nothing but leave a file."""
    made = Mock()

    def fit() -> None:
        run = made.call_args.kwargs["run_config"]
        folder = Path(run.storage_path) / run.name
        folder.mkdir()
        (folder / "experiment_state.json").write_text("{}")
        for callback in run.callbacks:
            if isinstance(callback, trial_processes.TrialProcesses):
                callback.on_trial_start(0, [], SimpleNamespace(temporary_state=SimpleNamespace(ray_actor="a process")))
        made.ends()

    made.return_value.fit = fit
    for name in ("Tuner", "with_resources", "with_parameters"):
        monkeypatch.setattr(tune, name, made if name == "Tuner" else Mock())
    monkeypatch.setattr(tune_run, "_quieten", lambda: None)
    monkeypatch.setattr(trial_processes.ray, "kill", made.kill)
    monkeypatch.setattr(tune_run.tempfile, "gettempdir", lambda: str(tmp_path))
    return made


def test_tunes_own_files_are_kept_and_a_lost_process_is_begun_again(tuner: Mock, submission: Submission) -> None:
    stop: Any = Mock(spec=tune.Stopper)
    run_in_tune("mine", submission.context.store, Mock(), {}, tune.TuneConfig(), stop=stop)
    run = tuner.call_args.kwargs["run_config"]
    assert run.failure_config.max_failures == LOST_ACTORS and run.stop is stop
    assert (Path(submission.context.store.root) / "tune" / "mine" / "experiment_state.json").exists()
    assert not Path(run.storage_path).exists(), "nothing is left on the scratch disk"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), RuntimeError("a bug")])
def test_whatever_ends_tune_ends_the_processes_of_its_trials(error: BaseException, tuner: Mock, submission: Submission) -> None:
    """Else a trial sees that its board is gone, opens another and has built what nobody waits for."""
    tuner.ends.side_effect = error
    with pytest.raises(type(error)):
        run_in_tune("mine", submission.context.store, Mock(), {}, tune.TuneConfig(), stop=Mock(spec=tune.Stopper))
    tuner.kill.assert_called_once_with("a process")


def test_a_trial_that_fails_is_not_begun_again_and_parts_from_its_board(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(tune, "report", shown.append)
    board, trial = Mock(), SimpleNamespace(max_failures=LOST_ACTORS)
    with pytest.raises(ValueError), report_end(board):
        raise ValueError("diverged")
    board.unregister.assert_called_once_with()
    found = take_failure(trial, shown[0])
    assert isinstance(found, ValueError) and trial.max_failures == 0
    with report_end(board):
        raise SweepStopped(where="here", found="this", expected="that", remedy="None.")
    assert shown[1:] == [{STOPPED: True}] and take_failure(SimpleNamespace(), shown[1]) is None
