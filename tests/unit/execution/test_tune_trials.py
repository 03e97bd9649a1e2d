"""The trials of a sweep or search as Tune has them: order, width, what each reports, how they end. Tune and the board are stood in for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray import tune
from ray.tune.schedulers import TrialScheduler

from sentdist.errors import ResourceError, SweepStopped
from sentdist.execution import trials
from sentdist.execution.board.client import BoardClient
from sentdist.execution.board.submissions import Submission
from sentdist.execution.searching import on_cluster
from sentdist.execution.searching.on_cluster import NUMBER, RUNG_SCORE, SHARE
from sentdist.execution.trials import LOST_ACTORS, STOPPED, report_end, take_failure
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.rung_records import RungScore
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe

TRIAL = SimpleNamespace(config={NUMBER: 7}, max_failures=3)
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
        does(callbacks[0])

    monkeypatch.setattr(trials, "run_in_tune", run)
    outcomes = trials.run_trials(plan.trials, submission, Mock(), at_once=3, print_line=lines.append)
    return outcomes, lines, configs[0]


def _trial(plan: Plan, number: int, **reported: Any) -> Any:
    return SimpleNamespace(config=trials.config_of(plan.trials[number]), last_result=reported, max_failures=LOST_ACTORS)


class Search:
    """A search whose trials do as `does` says; it is given what Tune would have: scheduler, stopper, searcher."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.conductor, self.board, self.remote, self.kill = Mock(hours_left=None), Mock(spec=BoardClient), Mock(), Mock()
        self.conductor.planned.recipe.name = "tiny"
        self.conductor.trial.return_value = SimpleNamespace(rungs=[])
        self.config: Any = None
        self.does: Callable[[Any, Any], None] = lambda scheduler, stopper: None
        self.submission = Submission(context=Context(store=ArtifactStore(folder)), sweep="tiny")
        monkeypatch.setattr(on_cluster, "BoardClient", lambda *_: self.board)
        monkeypatch.setattr(on_cluster.ray, "remote", self.remote)
        monkeypatch.setattr(on_cluster.ray, "kill", self.kill)
        monkeypatch.setattr(on_cluster, "run_in_tune", self._tune)

    def _tune(self, name: str, store: Any, trial: Any, shared: Any, config: Any, *, stop: Any, callbacks: Any) -> None:
        self.config = config
        self.does(config.scheduler, stop)

    def run(self) -> None:
        on_cluster._fit(self.conductor, self.submission, at_once=3, print_line=lambda line: None)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Search:
    return Search(monkeypatch, tmp_path / "store")


def _at(share: float) -> dict[str, Any]:
    return {SHARE: share, RUNG_SCORE: json.dumps(asdict(SCORE))}


def test_each_trial_without_scores_has_an_error(plan: Plan, submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    store, scored = submission.context.store, plan.trials[0].scores
    with store.staged() as folder:
        (folder / "data").write_text("")
        store.commit(scored, folder, seconds=0.0, runtime={}, environment={}, results={})

    def ends(lines: Any) -> None:
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
    outcomes, lines, _ = _run(plan, submission, monkeypatch, lambda lines: lines.on_trial_result(0, [], _trial(plan, 1), {STOPPED: True}))
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


def test_a_rung_is_counted_once_also_where_its_trial_was_lost_and_began_anew(search: Search) -> None:
    reported: list[str] = []

    def does(scheduler: Any, stopper: Any) -> None:
        reported.append(scheduler.on_trial_result(None, TRIAL, _at(0.3)))
        search.conductor.trial.return_value = SimpleNamespace(rungs=[SimpleNamespace(share=0.3)])
        reported.append(scheduler.on_trial_result(None, TRIAL, _at(0.3)))
        search.conductor.arrive.return_value = False
        reported.append(scheduler.on_trial_result(None, TRIAL, _at(1.0)))
        scheduler.on_trial_error(None, TRIAL)  # its process is lost too often

    search.does = does
    search.run()
    assert [call.args for call in search.conductor.arrive.call_args_list] == [(7, 0.3, SCORE), (7, 1.0, SCORE)]
    assert reported == [TrialScheduler.CONTINUE, TrialScheduler.CONTINUE, TrialScheduler.STOP]
    number, error = search.conductor.fail.call_args.args
    assert number == 7 and isinstance(error, ResourceError)
