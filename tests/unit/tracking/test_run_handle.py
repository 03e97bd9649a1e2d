"""What a training's handle and the runs of a search's trials send. The server is stood in for."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sentdist.plan.dotted import short_names
from sentdist.store.searches import TrialSuggested
from sentdist.store.store import ArtifactStore
from sentdist.tracking import mlflow_tracker, search_runs
from sentdist.tracking.mlflow_tracker import MlflowRun, SystemSampler
from sentdist.tracking.pages import TAG
from sentdist.tracking.run_values import Point
from sentdist.tracking.search_runs import SearchRuns
from sentdist.tracking.server import PARENT
from tests.support.synthetic_searches import made_up_search


class Client:
    """Keeps the points of each request; `away`: requests that it does not take."""

    def __init__(self, *, away: int = 0, known: dict[str, list[int]] | None = None) -> None:
        self.away, self.known = away, known or {}
        self.requests: list[list[tuple[str, float, int]]] = []

    def get_metric_history(self, run_id: str, name: str) -> list[Any]:
        return [SimpleNamespace(step=step) for step in self.known.get(name, [])]

    def log_batch(self, run_id: str, metrics: Any, params: Any, tags: Any) -> None:
        self.requests.append([(metric.key, metric.value, metric.step) for metric in metrics])


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(client: Client) -> MlflowRun:
        run = MlflowRun(uri="http://127.0.0.1:9", experiment_id="1", run_id="2")

        def attempt(what: str, action: Any, **_: Any) -> Any:
            client.away -= 1
            return action(client) if client.away < 0 else None

        monkeypatch.setattr(run, "_server", SimpleNamespace(attempt=attempt, look_again=lambda: None, warnings=[]))
        monkeypatch.setattr(run, "_start", lambda: None)
        return run

    return made


def _sent(client: Client) -> list[tuple[str, float, int]]:
    return [point for request in client.requests for point in request]


def test_points_that_a_server_did_not_take_are_sent_later_in_their_order(handle: Any) -> None:
    client = Client(away=1)
    run = handle(client)
    for step in (1, 2, 3):
        run.metrics({"loss": float(step)}, step=step)
    assert not run._send() and run._not_before > mlflow_tracker.time.monotonic()
    run.metrics({"loss": 4.0}, step=4)
    assert run._send()
    assert _sent(client) == [("loss", float(step), step) for step in (1, 2, 3, 4)]


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
    pages = SearchRuns(made_up_search(samples=2), STORE).pages("7")
    assert all(page.startswith("#/experiments/7/runs?") for page in pages.values()) and "Search: RCL, parallel coordinates" in pages
    key, value = rcl.tag(102)
    assert key.startswith(TAG) and json.loads(json.loads(value)["state"]) == rcl.state


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


class Monitor:
    """Gives one number more each time that it is asked, and averages those since it was cleared."""

    def __init__(self) -> None:
        self.asked, self.kept = 0, list[float]()

    def collect_metrics(self) -> None:
        self.asked += 1
        self.kept.append(float(self.asked))

    def aggregate_metrics(self) -> dict[str, float]:
        return {"cpu": sum(self.kept) / len(self.kept)}

    def clear_metrics(self) -> None:
        self.kept.clear()


def test_each_sample_of_the_machine_is_of_its_own_moment_and_has_its_own_step(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, kind in (("cpu", "CPU"), ("disk", "Disk"), ("network", "Network"), ("gpu", "GPU")):
        monkeypatch.setattr(f"mlflow.system_metrics.metrics.{module}_monitor.{kind}Monitor", Monitor)
    sampler = SystemSampler()
    sampler._monitors = sampler._monitors[:1]
    assert [sampler.sample() for _ in range(2)] == [{"system/cpu": 2.0}, {"system/cpu": 3.0}]
    client = Client()
    run = handle(client)
    run.watch_system()
    monkeypatch.setattr(mlflow_tracker, "SystemSampler", lambda: sampler)
    for _ in range(2):
        run._is_closing = True
        run._serve()
    assert _sent(client) == [("system/cpu", 4.0, 3), ("system/cpu", 5.0, 4)]
    again = pickle.loads(pickle.dumps(MlflowRun(uri="http://127.0.0.1:9", experiment_id="1", run_id="a")))
    assert again.url == "http://127.0.0.1:9/#/experiments/1/runs/a?workflowType=machine_learning" and again.close() == []
