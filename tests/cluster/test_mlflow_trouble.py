"""Sweeps and MLflow when something goes wrong: a server that is away or dies, a driver that is killed, a trial that fails."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from mlflow import MlflowClient

from sentdist.errors import RecipeError, ResourceError
from sentdist.recipe.stages import Train
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep
from sentdist.tracking import server as tracking_server
from sentdist.tracking.tracker import Tracker, rebuild
from tests.cluster.tracked_sweep import Tracked
from tests.support.mlflow_fixtures import NUM_POINTS, MlflowServer, drive, make_up, small_sweep

pytestmark = pytest.mark.cluster


def test_without_a_server_training_goes_on_and_a_rebuild_brings_all_in(
    server: MlflowServer, client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking_server, "PAUSE_S", tracking_server.MAX_PAUSE_S)
    away = MlflowServer(tmp_path / "never-started")
    missed = Tracked(small_sweep("missed", num_phi_sets=1), ArtifactStore(tmp_path / "store"), client)
    tracker = missed.begin(away.uri)
    drive(tracker, missed.plan.stages, missed.store)
    tracker.finish_sweep()
    (warning,) = tracker.warnings
    assert "is away" in warning and "--rebuild" in warning
    (done,) = rebuild(missed.store, server.uri)
    assert (done.num_trials, done.num_scored, done.num_runs) == (4, 4, 4)
    assert len(missed.trials) == 4 and len(missed.runs()) == 5
    run = missed.trials["RCL · seed 0"]
    assert len(client.get_metric_history(run.info.run_id, "loss")) == NUM_POINTS
    scores, ended = next(trial.scores for trial in missed.plan.trials if trial.name == "RCL · seed 0"), missed.sweep.records(missed.store)
    trained_ms, scored_ms = (datetime.fromisoformat(ended[stage.key].created_at).timestamp() * 1000 for stage in (scores.encoder, scores))
    assert (run.info.start_time, run.info.end_time) == (trained_ms - 12_500, scored_ms)  # a record's time is in whole seconds
    assert missed.parent.info.end_time == max(datetime.fromisoformat(record.created_at).timestamp() * 1000 for record in ended.values())
    before = missed.state()
    rebuild(missed.store, server.uri, "missed")
    assert missed.state() == before
    with pytest.raises(ResourceError, match="away"):
        rebuild(missed.store, away.uri, "missed")
    with pytest.raises(RecipeError, match="http"):
        Tracker("sqlite:///mlflow.db", missed.store)


def test_a_server_that_dies_in_mid_run_costs_one_warning_and_nothing_is_lost(
    client: MlflowClient, server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking_server, "PAUSE_S", tracking_server.MAX_PAUSE_S)
    cut = Tracked(small_sweep("cut", num_phi_sets=1), ArtifactStore(tmp_path), client)
    tracker = cut.begin(server.uri)
    stages = list(cut.plan.stages)
    own = {trial.train for trial in cut.sweep.trials}
    training = next(number for number, stage in enumerate(stages) if isinstance(stage, Train) and stage.key in own)
    drive(tracker, stages[:training], cut.store)
    run = tracker.begin(stages[training].key)
    run.follow([{"step": 1, "loss": 1.0}])
    server.stop()
    run.follow([{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.9}])
    warnings = run.close()
    tracker.finish(make_up(stages[training], cut.store).record)
    warnings += drive(tracker, stages[training:], cut.store)
    tracker.finish_sweep()
    server.start()
    assert len(tracker.warnings) == 1
    assert len(warnings) <= 1  # the last handles were opened while the server was known to be away
    rebuild(cut.store, server.uri)
    state = cut.state()
    assert {run.info.status for run in cut.runs()} == {"FINISHED"}
    assert len(cut.runs()) == 1 + len(cut.trials)
    points = client.get_metric_history(cut.trials["Eq. 1 · seed 0"].info.run_id, "loss")
    assert [point.step for point in points if point.step % 5 == 0] == [5 * number for number in range(1, NUM_POINTS + 1)]
    rebuild(cut.store, server.uri)
    assert cut.state() == state


def test_a_sweep_that_ends_leaves_the_runs_of_another_store(server: MlflowServer, client: MlflowClient, tmp_path: Path) -> None:
    """Two people run a recipe on one server, each with a store of their own; the one who is done ends nothing of the other's."""
    theirs = Tracked(small_sweep("twice", num_phi_sets=2), ArtifactStore(tmp_path / "theirs"), client)
    ours = Tracked(small_sweep("twice", num_phi_sets=1), ArtifactStore(tmp_path / "ours"), client)
    other, tracker = theirs.begin(server.uri), ours.begin(server.uri)
    only_theirs = next(trial for trial in theirs.plan.trials if trial.key not in {one.key for one in ours.plan.trials})
    other.begin(only_theirs.key)
    of_nobody = client.create_run(theirs.experiment).info.run_id  # as a search's, which is no child of the sweep
    drive(tracker, ours.plan.stages, ours.store)
    tracker.finish_sweep()
    assert theirs.trials[only_theirs.name].info.status == "RUNNING"
    other.finish_sweep("stopped")
    assert theirs.trials[only_theirs.name].info.status == "KILLED"
    assert client.get_run(of_nobody).info.status == "RUNNING"


def test_a_failed_trial_says_why_until_it_is_built(server: MlflowServer, client: MlflowClient, tmp_path: Path) -> None:
    """And a sweep that is complete stays so when its killed driver is cleared up."""
    failed = Tracked(small_sweep("failed", num_phi_sets=1), ArtifactStore(tmp_path), client)
    tracker = failed.begin(server.uri)
    trial = failed.plan.trials[-1]
    tracker.begin(trial.key)
    tracker.fail(trial.key, "the loss is not finite at step 7")
    tracker.finish_sweep("failed")
    run = failed.trials[trial.name]
    assert run.info.status == failed.parent.info.status == "FAILED"
    assert run.data.tags["sentdist.reason"] == "the loss is not finite at step 7"
    killed = failed.begin(server.uri)
    killed.begin(trial.key)
    assert failed.trials[trial.name].info.status == failed.parent.info.status == "RUNNING"
    killed.finish_sweep("stopped")
    assert failed.parent.info.status == "KILLED"
    again = failed.begin(server.uri)
    drive(again, failed.plan.stages, failed.store)
    again.finish_sweep()
    killed.finish_sweep("stopped")
    run = failed.trials[trial.name]
    assert {one.info.status for one in failed.runs()} == {"FINISHED"}
    assert "sentdist.reason" not in run.data.tags


def test_what_failed_or_was_cut_off_is_shown_as_far_as_it_came_until_it_is_built(
    server: MlflowServer, client: MlflowClient, tmp_path: Path
) -> None:
    """Under `--local` MLflow is written when all is over, and a failure stands in no record."""
    store, plan = ArtifactStore(tmp_path), small_sweep("in-one-process", num_phi_sets=1)
    found = Tracked(plan, store, client)
    save_sweep(store, found.sweep)
    failed, last = next(trial for trial in plan.trials if trial.method == "fine_tuned"), plan.trials[-1]
    lost = {failed.key, failed.scores.encoder.key, last.key}
    for stage in (one for one in plan.stages if one.key not in lost):
        make_up(stage, store)
    rebuild(store, server.uri, plan.recipe.name)
    assert found.parent.info.status == found.trials[last.name].info.status == "KILLED"
    rebuild(store, server.uri, plan.recipe.name, failures={failed.key: "TrainingDiverged: step 3"})
    run = found.trials[failed.name]
    assert (run.info.status, run.data.tags["sentdist.reason"]) == ("FAILED", "TrainingDiverged: step 3")
    assert run.data.params["method"] == "fine_tuned" and found.parent.info.status == "FAILED"
    for stage in plan.stages:
        make_up(stage, store)
    rebuild(store, server.uri, plan.recipe.name)
    assert {one.info.status for one in found.runs()} == {"FINISHED"} and "sentdist.reason" not in found.trials[failed.name].data.tags
