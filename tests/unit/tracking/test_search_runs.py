"""What stands on the run of a search's trial, and what its views show; the pages themselves are looked at in tests/browser."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sentdist.plan.dotted import short_names
from sentdist.store.searches import TrialSuggested
from sentdist.store.store import ArtifactStore
from sentdist.tracking import search_runs
from sentdist.tracking.pages import TAG
from sentdist.tracking.run_values import Point, shown
from sentdist.tracking.search_runs import SearchRuns
from sentdist.tracking.server import PARENT
from tests.support.synthetic_searches import made_up_search

STORE = ArtifactStore("/nowhere")


def test_settings_have_short_names_that_tell_fields_of_one_method_apart() -> None:
    paths = ["training.learning_rate", "methods.rcl.objective.temperature", "methods.rcl.regularizers.temperature"]
    assert list(short_names([paths]).values()) == ["learning_rate", "objective.temperature", "regularizers.temperature"]
    assert short_names([paths, paths[1:2]])[paths[1]] == "objective.temperature", "one name for one field, whichever method has it"
    alone = short_names([["methods.a.objective.temperature"], ["methods.b.objective.temperature"]])
    assert set(alone.values()) == {"temperature"}, "one column for one thing, whichever method has it"


def test_each_method_has_parallel_coordinates_of_its_own_fields() -> None:
    table, plain, rcl = SearchRuns(made_up_search(samples=2), STORE).views
    assert table.mode == "TABLE" and "tags.`sentdist.state`" in table.state["selectedColumns"]  # type: ignore[operator]
    for view, fields in ((plain, ["log10 learning_rate"]), (rcl, ["log10 learning_rate", "phis", "regulator_weight"])):
        (card, _) = view.state["compareRunCharts"]  # type: ignore[misc]
        assert card["type"] == "PARALLEL" and card["selectedParams"] == fields and card["showAllRuns"]  # type: ignore[index, call-overload]
        assert "best_dev_score" in card["selectedMetrics"]  # type: ignore[index, call-overload, operator]
    assert "'rcl'" in str(rcl.state["searchFilter"])
    key, value = rcl.tag(102)
    assert key.startswith(TAG) and json.loads(json.loads(value)["state"]) == rcl.state


def test_the_best_dev_score_is_that_of_a_trial_that_came_to_its_end() -> None:
    record = made_up_search(samples=4)
    devs = [trial.dev or 0.0 for trial in record.trials if trial.state == "finished"]
    assert SearchRuns(record, STORE)._bests == {"best_dev_score": shown(max(devs))}
    ended = [trial.model_copy(update={"state": "pruned"}) if trial.dev == max(devs) else trial for trial in record.trials]
    less = record.model_copy(update={"trials": tuple(ended)})
    assert SearchRuns(less, STORE)._bests == {"best_dev_score": shown(sorted(devs)[-2])}


def test_pages_are_links_within_the_server() -> None:
    pages = SearchRuns(made_up_search(samples=2), STORE).pages("7")
    assert all(page.startswith("#/experiments/7/runs?") for page in pages.values())
    assert "Search: RCL, parallel coordinates" in pages


def test_a_trial_stands_below_its_search_from_the_moment_of_its_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    record = made_up_search(samples=3)
    made = Mock()
    monkeypatch.setattr(search_runs, "create_run", made)
    parent: Any = SimpleNamespace(info=SimpleNamespace(run_id="the search"))
    began = {event.number: event.at for event in record.events if isinstance(event, TrialSuggested)}
    assert len(set(began.values())) > 1
    for trial in record.trials:
        SearchRuns(record, STORE)._make(Mock(), "1", parent, trial)
        assert made.call_args.kwargs["started_ms"] == int(1000 * began[trial.number])
        assert made.call_args.kwargs["tags"][PARENT] == "the search"


def test_a_dev_score_that_the_curve_has_stands_on_the_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    record = made_up_search(samples=6)
    trial = max(record.trials, key=lambda one: len(one.rungs))
    first, *others = trial.rungs
    assert others
    monkeypatch.setattr(SearchRuns, "curve", lambda *_: [Point("loss", 0.5, 1, first.step), Point("dev_score", 80.0, 1, first.step)])
    run: Any = SimpleNamespace(
        info=SimpleNamespace(run_id="1", status="RUNNING"), data=SimpleNamespace(params={}, metrics={}, tags={}), inputs=None
    )
    client = Mock()
    SearchRuns(record, STORE)._update(run, trial, is_left=False).send(client)
    points = [metric for call in client.log_batch.call_args_list for metric in call.kwargs["metrics"] if metric.key == "dev_score"]
    assert [point.step for point in points] == [first.step, *(rung.step for rung in others)]
