"""How a search follows what Tune says of its trials, and what it leaves behind. Tune, the board and the conductor are stood in for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.tune.schedulers import TrialScheduler

from sentdist.errors import ResourceError, StoreError, SweepStopped
from sentdist.execution.board.client import BoardClient
from sentdist.execution.board.submissions import Submission
from sentdist.execution.cluster.address import HEAD
from sentdist.execution.searching import on_cluster
from sentdist.execution.searching.on_cluster import NUMBER, RUNG_SCORE, SHARE
from sentdist.execution.trials import STOPPED
from sentdist.stages.context import Context
from sentdist.stages.rung_records import RungScore
from sentdist.store.store import ArtifactStore

SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}


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


def _at(share: float, score: Any) -> dict[str, Any]:
    return {SHARE: share, RUNG_SCORE: json.dumps(asdict(score))}


@pytest.fixture
def score() -> RungScore:
    fields = {name: 1 for name in RungScore.__dataclass_fields__}
    return RungScore(**fields)  # type: ignore[arg-type]


TRIAL = SimpleNamespace(config={NUMBER: 7}, max_failures=3)


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt(), RuntimeError("a bug")])
def test_a_search_that_ends_leaves_its_board_and_no_process(ends: BaseException | None, search: Search) -> None:
    search.does = Mock(side_effect=ends)
    if ends is None:
        search.run()
    else:
        with pytest.raises(type(ends)):
            search.run()
    search.board.leave.assert_called_once_with()
    search.kill.assert_called_once_with(search.remote.return_value.return_value.remote.return_value)
    assert search.remote.call_args.kwargs == {"num_cpus": 0, "resources": HEAD}, "where it is not lost with a host"
    assert search.config.max_concurrent_trials == 3


def test_a_rung_is_counted_once_also_where_its_trial_was_lost_and_began_anew(search: Search, score: RungScore) -> None:
    reported: list[str] = []

    def does(scheduler: Any, stopper: Any) -> None:
        reported.append(scheduler.on_trial_result(None, TRIAL, _at(0.3, score)))
        search.conductor.trial.return_value = SimpleNamespace(rungs=[SimpleNamespace(share=0.3)])
        reported.append(scheduler.on_trial_result(None, TRIAL, _at(0.3, score)))
        search.conductor.arrive.return_value = False
        reported.append(scheduler.on_trial_result(None, TRIAL, _at(1.0, score)))

    search.does = does
    search.run()
    assert [call.args for call in search.conductor.arrive.call_args_list] == [(7, 0.3, score), (7, 1.0, score)]
    assert reported == [TrialScheduler.CONTINUE, TrialScheduler.CONTINUE, TrialScheduler.STOP]


@pytest.mark.parametrize("meets", ["arrive", "fail"])
def test_a_search_that_cannot_be_noted_ends_with_what_kept_it_from_that(meets: str, search: Search, score: RungScore) -> None:
    error = StoreError(**SAID)
    getattr(search.conductor, meets).side_effect = error

    def does(scheduler: Any, stopper: Any) -> None:
        if meets == "arrive":
            assert scheduler.on_trial_result(None, TRIAL, _at(0.3, score)) == TrialScheduler.STOP
        else:
            scheduler.on_trial_error(None, TRIAL)
        assert stopper.stop_all()

    search.does = does
    with pytest.raises(StoreError) as raised:
        search.run()
    assert raised.value is error


def test_a_trial_whose_process_is_lost_too_often_has_failed(search: Search) -> None:
    search.does = lambda scheduler, stopper: scheduler.on_trial_error(None, TRIAL)
    search.run()
    number, error = search.conductor.fail.call_args.args
    assert number == 7 and isinstance(error, ResourceError) and "trial 7" in str(error)


def test_a_search_that_is_stopped_says_so_and_its_hours_rest(search: Search) -> None:
    def does(scheduler: Any, stopper: Any) -> None:
        assert not stopper("1", {SHARE: 0.3}) and not stopper.stop_all()
        assert stopper("1", {STOPPED: True}) and stopper.stop_all()

    search.does = does
    with pytest.raises(SweepStopped):
        search.run()
    search.conductor.stop.assert_called_once_with()


@pytest.mark.parametrize(("hours", "is_over"), [(None, False), (1.5, False), (0.0, True)])
def test_a_search_ends_with_its_hours(hours: float | None, is_over: bool, search: Search) -> None:
    search.conductor.hours_left = hours
    found: list[bool] = []
    search.does = lambda scheduler, stopper: found.append(stopper.stop_all())
    search.run()
    assert found == [is_over] and search.conductor.next.called == is_over, "which says why"
