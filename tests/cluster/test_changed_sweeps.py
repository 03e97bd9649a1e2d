"""Sweeps on a real MLflow server that are submitted again with other cells under the same name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient

from sentdist.plan.stage import Json
from sentdist.plan.unroll import Plan
from sentdist.store.store import ArtifactStore
from sentdist.tracking.pages import CELL, TRIALS_ONLY
from sentdist.tracking.search_runs import rebuild
from tests.cluster.tracked_sweep import Tracked
from tests.support.mlflow_fixtures import MlflowServer, drive
from tests.support.planning import plan_of, small_recipe

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

RCL: dict[str, Json] = {
    "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "select": False, "reported": False},
    "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01]},
}


def driven(plan: Plan, store: ArtifactStore, client: MlflowClient, server: MlflowServer) -> Tracked:
    """The sweep after it was carried out once more; what the store has is not built again."""
    found = Tracked(plan, store, client)
    tracker = found.begin(server.uri)
    drive(tracker, plan.stages, store)
    tracker.finish_sweep()
    assert not tracker.warnings
    return found


def test_the_sweep_shows_the_scores_of_what_dev_chooses_now(server: MlflowServer, client: MlflowClient, tmp_path: Path) -> None:
    """MLflow shows the value of the latest step: with fewer trials than before it was that of a cell that is gone."""
    methods: dict[str, Json] = {"fine_tuned": {"objective": {"name": "info_nce"}}, **RCL}
    wide, narrow = (plan_of(small_recipe(name="narrowed", methods=kept, evaluation={"tasks": ["stsb"]})) for kept in (methods, RCL))
    store = ArtifactStore(tmp_path)
    shown, listed = [], []
    for plan in (wide, narrow, wide):
        shown.append((found := driven(plan, store, client, server)).parent)
        listed.append(Counter(run.data.tags[CELL] for run in found.runs(TRIALS_ONLY)))
    assert listed[0] == listed[2] and {*listed[0]} == {"fine_tuned", *listed[1]} and {*listed[1]} == {"rcl"}, (
        "the view shows today's trials"
    )
    assert [run.data.tags["sentdist.best"] for run in shown] == ["fine_tuned", "rcl", "fine_tuned"]
    assert [run.data.metrics["best_dev_score"] for run in shown] == [80.5, 79.5, 80.5]
    assert [run.data.metrics["stsb"] for run in shown] == [79.5, 80.5, 79.5]
    rebuild(store, server.uri, "narrowed")
    steps = [point.step for point in client.get_metric_history(shown[0].info.run_id, "stsb")]
    assert len(steps) == 3, "a rebuild adds none"


def test_another_axis_of_the_grid_names_earlier_trials_anew(server: MlflowServer, client: MlflowClient, tmp_path: Path) -> None:
    """Seeds of one cell stand under one name; those that were there before the axis had another, and made a group of their own."""
    methods: dict[str, Json] = {"fine_tuned": {"objective": {"name": "info_nce"}}}
    store = ArtifactStore(tmp_path)
    given: list[dict[str, Json]] = [{"seeds": [0]}, {"seeds": [0, 1], "sweep": {"training.batch_size": [64, 32]}}]
    for changes in given:
        found = driven(
            plan_of(small_recipe(name="axis", methods=methods, evaluation={"tasks": ["stsb"]}, **changes)), store, client, server
        )
    cells = Counter(run.data.tags["sentdist.cell"] for run in found.trials.values())
    assert cells == {"fine_tuned (batch_size=64)": 2, "fine_tuned (batch_size=32)": 2}
    assert set(found.trials) == {trial.name for trial in found.plan.trials}
