"""A search on a real MLflow server: its trials are runs while it runs; what a restart and a rebuild add to that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from sentdist.recipe.stage import Json
from sentdist.run.local import search_in_process
from sentdist.services.processes import free_port
from sentdist.store.searches import SearchRecord
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import Tracker, rebuild
from tests.support.mlflow_fixtures import MlflowServer
from tests.support.tiny_data import write_data
from tests.support.tiny_search import Killed, KilledAfter, tiny_search

STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_thread")]


class Shown:
    """The runs of a search as the server shows them."""

    def __init__(self, client: MlflowClient, name: str) -> None:
        self.client, self.name = client, name

    def runs(self, tag: str = "sentdist.search") -> list[Run]:
        experiment = self.client.get_experiment_by_name(self.name)
        found = [] if experiment is None else self.client.search_runs([experiment.experiment_id])
        return [run for run in found if tag in run.data.tags]

    @property
    def trials(self) -> dict[int, Run]:
        found = {int(run.data.params["trial"]): run for run in self.runs()}
        assert len(found) == len(self.runs()), "none is there twice"
        return found

    @property
    def parent(self) -> Run:
        (found,) = self.runs("sentdist.sweep")
        return found

    def steps(self, number: int, metric: str) -> list[int]:
        return [point.step for point in self.client.get_metric_history(self.trials[number].info.run_id, metric)]

    def state(self) -> dict[int, object]:
        """All that a person sees of the trials."""
        return {
            number: (
                run.info.run_id, run.info.status, run.data.params, {name: value for name, value in run.data.tags.items()},
                run.data.metrics,
                self.steps(number, "loss"), self.steps(number, "dev_score"),
            )
            for number, run in self.trials.items()
        }  # fmt: skip


def shows(shown: Shown, record: SearchRecord) -> None:
    """Each trial has one run, which tells how it ended and its curve."""
    trials = shown.trials
    assert {number: run.info.status for number, run in trials.items()} == {one.number: STATUS[one.state] for one in record.trials}
    assert {number: run.data.tags["sentdist.state"] for number, run in trials.items()} == {one.number: one.state for one in record.trials}
    for trial in record.trials:
        run = trials[trial.number]
        assert float(run.data.params["learning_rate"]) == trial.suggestion["training.learning_rate"]
        assert run.data.tags["mlflow.parentRunId"] == shown.parent.info.run_id
        if trial.state == "failed":
            continue
        assert run.data.metrics["best_dev_score"] == pytest.approx(trial.dev, abs=0.01)
        last = trial.rungs[-1].step
        loss, dev = shown.steps(trial.number, "loss"), shown.steps(trial.number, "dev_score")
        assert loss and loss == sorted(set(loss)) and all(step <= last for step in loss), "also of a training that was pruned"
        assert dev == sorted(set(dev)) and dev[-1] == last and {rung.step for rung in trial.rungs} <= set(dev)


def test_a_search_that_is_stopped_goes_on_in_the_same_runs(
    server: MlflowServer, client: MlflowClient, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    """In this process; its runs are killed meanwhile, and a rebuild leaves them so."""
    still: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}  # without dropout: its luck chooses none
    method: Json = {"objective": {"name": "info_nce"}, "regularizers": still}
    changes: dict[str, Json] = {"name": "live-again", "methods": {"fine_tuned": method}, "baseline": None}
    space: Json = {"training.learning_rate": {"choice": [1e-3, 1e-4, 3e-4, 1e-2, 1e30]}}  # the first goes on, the last diverges
    options: dict[str, Any] = {"changes": changes, "suggest": "grid", "samples": None, "space": space}
    planned, context = tiny_search(tiny_encoder_dir, write_data(tmp_path / "data"), tmp_path / "store", **options)
    shown, lines = Shown(client, "live-again"), list[str]()

    def search(tracker: Tracker) -> SearchRecord:
        try:
            return search_in_process(planned, context, tracker, print_line=lines.append)
        finally:
            tracker.finish_search()

    with pytest.raises(Killed):
        search(KilledAfter(4, server.uri, context.store))
    assert shown.parent.info.status == "KILLED"
    states = {number: (run.info.status, run.data.tags["sentdist.state"]) for number, run in shown.trials.items()}
    assert sorted(states.values())[-1] == ("KILLED", "running") and ("FINISHED", "finished") in states.values()
    before = shown.state()
    rebuild(context.store, server.uri, "live-again")
    assert shown.state() == before
    tracker = Tracker(server.uri, context.store)
    record = search(tracker)
    shows(shown, record)
    assert {run.info.run_id for run in shown.runs()} >= {found[0] for found in before.values()}  # type: ignore[index]
    client.rename_experiment(client.get_experiment_by_name("live-again").experiment_id, "live-before")  # type: ignore[union-attr]
    rebuild(ArtifactStore(context.store.root), server.uri, "live-again")  # as on a server that saw nothing of it
    shows(shown, record)
    assert shown.parent.info.status == "FINISHED"
    assert not tracker.warnings
    away = Tracker(f"http://127.0.0.1:{free_port()}", context.store)  # a dead server costs a search one line
    search(away)
    (reported,) = away.warnings
    assert "is away" in reported and "sentdist report --rebuild-mlflow" in reported
