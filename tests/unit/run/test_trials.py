"""The trials of a sweep or search as Tune has them: order, width, what each reports, how they end. Tune and the board are stood in for."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray import tune
from ray.tune.schedulers import TrialScheduler

from sentdist.errors import DataError, ResourceError, StoreError, SweepStopped
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.run import progress, sweep, trials
from sentdist.run.client import BoardClient
from sentdist.run.progress import TrialOutcome
from sentdist.run.resources import ClusterNodes, Node
from sentdist.run.submissions import Submission
from sentdist.run.trials import LOST_ACTORS, RUNG_SCORE, SHARE, STOPPED, report_end, take_failure
from sentdist.stages.context import Context
from sentdist.stages.rung_records import RungScore
from sentdist.store.store import ArtifactStore
from tests.support.planning import RECIPES, plan_of, shipped_plan, small_recipe

TRIAL = SimpleNamespace(config={"trial": 7}, max_failures=3)
SCORE = RungScore(**dict.fromkeys(RungScore.__dataclass_fields__, 1))  # type: ignore[arg-type]


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
        does(callbacks[0], stop)

    monkeypatch.setattr(trials, "run_in_tune", run)
    outcomes = trials.run_trials(plan.trials, submission, Mock(), at_once=3, print_line=lines.append)
    return outcomes, lines, configs[0]


def _trial(plan: Plan, number: int, **reported: Any) -> Any:
    return SimpleNamespace(config=trials.config_of(plan.trials[number]), last_result=reported, max_failures=LOST_ACTORS)


def _search(
    monkeypatch: pytest.MonkeyPatch, folder: Path, does: Callable[[Any, Any], None], *, arrives: Any = None, asked: Any = None
) -> tuple[Mock, Mock]:
    """Run a search whose Tune does as `does` says with scheduler and config; return the search and its board."""
    run, board = Mock(is_time_up=False), Mock(spec=BoardClient)
    run.arrive.side_effect, run.ask.return_value = arrives, asked

    def run_in_tune(name: str, store: Any, trial: Any, shared: Any, config: Any, *, stop: Any, callbacks: Any) -> None:
        does(config, stop)

    monkeypatch.setattr(trials, "BoardClient", lambda *_: board)
    monkeypatch.setattr(trials, "run_in_tune", run_in_tune)
    trials.run_search(run, Submission(context=Context(store=ArtifactStore(folder)), sweep="tiny"), at_once=3)
    return run, board


def _at(share: float) -> dict[str, Any]:
    return {SHARE: share, RUNG_SCORE: json.dumps(asdict(SCORE))}


def test_each_trial_without_scores_has_an_error(plan: Plan, submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    store, scored = submission.context.store, plan.trials[0].scores
    with store.staged() as folder:
        (folder / "data").write_text("")
        store.commit(scored, folder, seconds=0.0, runtime={}, environment={}, results={})

    def ends(lines: Any, stop: Any) -> None:
        lines.on_trial_complete(0, [], _trial(plan, 0, **{scored.tasks[0].name: 81.234}))
        lines.on_trial_error(0, [], _trial(plan, 1))

    outcomes, lines, config = _run(plan, submission, monkeypatch, ends)
    search: Any = config.search_alg
    suggested = [search.suggest(str(number)) for number in range(len(plan.trials))]
    assert [one["trial"] for one in suggested] == [trial.key for trial in plan.trials] and search.suggest("") == search.FINISHED
    assert config.max_concurrent_trials == 3 and config.num_samples == len(plan.trials)
    first, second, *others = (outcomes[trial.key].error for trial in plan.trials)
    assert first is None and isinstance(second, ResourceError) and "lost 4 times" in str(second)
    assert others and {str(error) for error in others} == {"Tune ended without having run this trial"}
    assert lines[0].startswith(f"trial 1/{len(plan.trials)}  {plan.trials[0].name}: ") and " 81.23" in lines[0]
    assert lines[1:] == [f"trial 2/{len(plan.trials)}  {plan.trials[1].name}: FAILED"]
    outcomes, lines, _ = _run(plan, submission, monkeypatch, lambda lines, stop: stop("1", {STOPPED: True}))
    assert not lines and {type(outcomes[trial.key].error) for trial in plan.trials[1:]} == {SweepStopped}


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


def test_rungs_and_losses_of_trials_are_reported_to_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: Plan) -> None:
    reported: list[str] = []
    train = next(stage for stage in plan.stages if isinstance(stage, Train))

    def does(config: Any, stop: Any) -> None:
        found = config.search_alg.suggest("7")
        assert (found["trial"], found["method"], found["training.epochs"], str(found["training"])) == (7, "one", 2, train.key)
        reported.extend(config.scheduler.on_trial_result(None, TRIAL, _at(share)) for share in (0.3, 1.0))
        config.scheduler.on_trial_error(None, TRIAL)  # its process is lost too often
        assert not stop.stop_all()

    asked = SimpleNamespace(number=7, method="one", suggestion={"training.epochs": 2}, train=train)
    run, board = _search(monkeypatch, tmp_path, does, arrives=[True, False], asked=asked)
    assert [call.args for call in run.arrive.call_args_list] == [(7, 0.3, SCORE), (7, 1.0, SCORE)]
    assert reported == [TrialScheduler.CONTINUE, TrialScheduler.STOP]
    number, error = run.fail.call_args.args
    assert number == 7 and isinstance(error, ResourceError)
    board.leave.assert_called_once_with()


def test_a_search_ends_with_what_cannot_be_recorded_or_was_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(config: Any, stop: Any) -> None:
        config.scheduler.on_trial_result(None, TRIAL, _at(0.3))
        assert stop.stop_all()

    with pytest.raises(StoreError):
        _search(monkeypatch, tmp_path, full, arrives=StoreError(**SAID))
    with pytest.raises(SweepStopped):
        _search(monkeypatch, tmp_path, lambda config, stop: stop("7", {STOPPED: True}))


SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}


class Driver:
    """Drives a plan whose trials end as `trials` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.plan: Plan = plan_of(small_recipe())
        self.context = Context(store=ArtifactStore(folder / "store"), runtime=self.plan.recipe.runtime)
        self.board, self.tracker, self.overlaps = Mock(), Mock(warnings=()), Mock()
        self.lines: list[str] = []
        self.trials: Callable[..., dict[str, TrialOutcome]] = lambda *_, **__: {}
        self.nodes = ClusterNodes(living=(Node(cpus=8.0),), to_come=(Node(cpus=8.0),))
        monkeypatch.setattr(sweep, "cluster_growth", lambda: self.nodes)
        monkeypatch.setattr(sweep, "BoardClient", self.board)
        monkeypatch.setattr(sweep, "printed_events", lambda *_, **__: nullcontext())
        monkeypatch.setattr(sweep, "build_overlaps", self.overlaps)
        self.num_parameters = 1
        for module in (sweep, progress):
            monkeypatch.setattr(module, "size_of", lambda *_: SimpleNamespace(num_parameters=self.num_parameters))
        monkeypatch.setattr(sweep, "worker_bytes", lambda stage, *_, **__: 1.0)
        monkeypatch.setattr("sentdist.run.trials.run_trials", lambda *given, **more: self.trials(*given, **more))

    def run(self) -> Any:
        return sweep.run_sweep(self.plan, self.context, tracker=self.tracker, print_line=self.lines.append)

    def ends(self, error: BaseException | None) -> None:
        self.trials = lambda trials, *_, **__: {trial.key: TrialOutcome(key=trial.key, name=trial.name, error=error) for trial in trials}


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    return Driver(monkeypatch, tmp_path)


def _allocated(monkeypatch: pytest.MonkeyPatch, folder: Path, nodes: tuple[Node, ...], *settings: str) -> sweep.ClusterAllocation:
    """What such a cluster gives the fine-tuning of the demo."""
    monkeypatch.setattr(sweep, "cluster_growth", lambda: ClusterNodes(living=nodes))
    plan = shipped_plan(RECIPES / "demo.yaml", *settings)
    plan = replace(plan, trials=tuple(trial for trial in plan.trials if trial.method == "fine_tuned"))
    keys = frozenset(stage.key for stage in plan.stages)
    context = Context(store=ArtifactStore(folder / "store"), runtime=plan.recipe.runtime)
    return sweep.allocate(plan, context, keys)


def test_the_runs_of_a_sweep_end_as_it_does(driven: Driver) -> None:
    ends: tuple[tuple[BaseException | None, bool, str | None], ...] = (
        (None, False, None),
        (DataError(**SAID), True, None),
        (SweepStopped(**SAID), False, "stopped"),
    )
    for error, failed, ended in ends:
        driven.tracker.reset_mock()
        driven.board.reset_mock()
        driven.ends(error)
        driven.run()
        keys = [call.args[0] for call in driven.tracker.fail.call_args_list]
        assert sorted(keys) == (sorted(trial.key for trial in driven.plan.trials) if failed else [])
        driven.tracker.finish_sweep.assert_called_once_with(ended)
        driven.board.return_value.leave.assert_called_once_with()
    driven.overlaps.side_effect = StoreError(**SAID)
    assert driven.run().name == driven.plan.recipe.name, "the summary is reported where overlaps cannot be counted"
    assert any("could not be counted" in line for line in driven.lines)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_a_driver_that_is_ended_leaves_its_board_and_says_that_it_was_stopped(error: BaseException, driven: Driver) -> None:
    """Else work that nobody waits for goes on for a minute, and the run stays one that runs."""
    driven.trials = Mock(side_effect=error)
    with pytest.raises(type(error)):
        driven.run()
    driven.board.return_value.leave.assert_called_once_with()
    driven.tracker.finish_sweep.assert_called_once_with("stopped")


def test_a_store_without_room_is_refused_before_anything_is_begun(driven: Driver) -> None:
    driven.num_parameters = 2**62
    with pytest.raises(StoreError):
        driven.run()
    driven.nodes = ClusterNodes(living=(Node(cpus=0.0),))
    with pytest.raises(ResourceError):  # a cluster that can carry nothing
        driven.run()
    assert not driven.board.called and not driven.tracker.begin_sweep.called


def test_what_would_end_on_a_gpu_is_refused_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = (Node(cpus=8, gpus=1), Node(cpus=8, gpus=1, old_gpu="T4"))
    with pytest.raises(ResourceError, match="T4"):
        _allocated(monkeypatch, tmp_path, old, "training.precision=bf16")
    _allocated(monkeypatch, tmp_path, old, "training.precision=bf16", "runtime.device=cpu")
    mixed = tuple(Node(cpus=8, gpus=gpus, gpu_types=(kind,)) for gpus, kind in ((2, "H100"), (3, "T4")))
    found = _allocated(monkeypatch, tmp_path, mixed, "runtime.gpu_type=H100", "seeds=[0,1,2]")
    assert found.devices == "on 2 GPU(s); 3 GPU(s) idle"
