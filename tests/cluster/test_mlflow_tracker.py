"""Sweeps on a real MLflow server: what stands there, and what a restart or another driver adds."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from sentdist.store.record import OWN_FILES
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import Tracker, rebuild
from sentdist.tracking.views import TAG
from tests.cluster.tracked_sweep import Tracked
from tests.support.mlflow_fixtures import NUM_POINTS, STS, MlflowServer, drive, small_sweep

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def tracked(server: MlflowServer, client: MlflowClient, encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    found = Tracked(small_sweep("tracked"), ArtifactStore(tmp_path_factory.mktemp("store")), client)
    tracker = found.begin(server.uri)
    assert not drive(tracker, found.plan.stages, found.store, encoder=encoder_folder)
    tracker.finish_sweep()
    assert not tracker.warnings
    return found


def test_curves_and_scores_stand_on_the_trial(tracked: Tracked, tmp_path: Path) -> None:
    run = tracked.trials["RCL (phis={0.01, 0.02}) · seed 0"]
    for name in ("loss", "learning_rate", "grad_norm", "sentences_per_s"):
        points = tracked.client.get_metric_history(run.info.run_id, name)
        assert [point.step for point in points] == [5 * number for number in range(1, NUM_POINTS + 1)]
    assert run.data.metrics["dev_score"] == 80.5
    assert run.data.metrics["avg_sts"] == pytest.approx(sum(run.data.metrics[task] for task in STS) / 7, abs=0.01)
    assert tracked.artifacts(run) == {"records.json"}
    shown = json.loads(Path(tracked.client.download_artifacts(run.info.run_id, "records.json", str(tmp_path))).read_text())
    assert {kind: record["kind"] for kind, record in shown.items()} == {"train": "train", "scores": "scores"}
    assert "loss" in tracked.trials["Entropy encoder · seed 0"].data.metrics, "also of a training that others need"


def test_parameters_can_be_searched(tracked: Tracked) -> None:
    for filter_string, number in (
        ("params.phis = '{0.01, 0.02}' and params.num_banks = '2'", 1),
        ("params.`objective.name` = 'rcl' and params.`training.batch_size` = '64' and metrics.avg_sts > 80.5", 1),
        ("params.seed = '0' and tags.`sentdist.trial` != ''", 4),
        ("params.encoder = 'minilm-l6' and params.corpus = 'nli/triplets' and params.`objective.temperature` = '0.05'", 3),
    ):
        assert len(tracked.runs(filter_string)) == number
    tags = tracked.client.get_experiment(tracked.experiment).tags
    assert tags["mlflow.experiment.primaryMetric.name"] == "best_dev_score"
    assert tags["mlflow.experiment.primaryMetric.greaterIsBetter"] == "true"
    kept = {tag.removeprefix(TAG): json.loads(value) for tag, value in tags.items() if tag.startswith(TAG)}
    note = tracked.parent.data.tags["mlflow.note.content"]
    assert kept and all(f"viewStateShareKey={view}" in note for view in kept)
    filters = {view: json.loads(content["state"])["searchFilter"] for view, content in kept.items()}
    assert len(tracked.runs(filters["sentdist-trials"])) == len(tracked.trials)


def test_doing_it_all_again_changes_nothing(tracked: Tracked, server: MlflowServer) -> None:
    before = tracked.state()
    tracker = pickle.loads(pickle.dumps(tracked.begin(server.uri)))
    for stage in tracked.plan.stages:
        tracker.begin(stage.key).close()
        artifact = tracked.store.get(stage)
        assert artifact is not None
        tracker.finish(artifact.record)
    tracker.finish_sweep()
    assert not tracker.warnings
    assert tracked.state() == before
    for run in tracked.trials.values():  # two drivers that look for a run at the same moment make one each
        tags = {name: run.data.tags[name] for name in ("sentdist.trial", "mlflow.parentRunId")}
        tracked.client.create_run(tracked.experiment, run_name="twin", start_time=run.info.start_time + 1, tags=tags)
    rebuild(tracked.store, server.uri, tracked.sweep.name)
    assert tracked.state() == before


def test_a_larger_sweep_of_the_same_name_adds_its_trials(server: MlflowServer, client: MlflowClient, tmp_path: Path) -> None:
    """And a training that goes back to its checkpoint repeats no point."""
    store = ArtifactStore(tmp_path)
    for number in (1, 2):
        grown = Tracked(small_sweep("grown", num_phi_sets=number), store, client)
        tracker = grown.begin(server.uri)
        drive(tracker, grown.plan.stages, store)
        tracker.finish_sweep()
    assert len(grown.trials) == 5 and len(grown.runs()) == 1 + 5
    best = client.get_metric_history(grown.parent.info.run_id, "best_dev_score")
    assert len(best) == 1, "dev chooses the same cell among more"
    tracker = grown.begin(server.uri)
    trial = next(trial for trial in grown.plan.trials if trial.method == "fine_tuned")
    run = tracker.begin(trial.key)
    run.follow([{"step": step, "loss": 0.5} for step in (35, 40, 45)])
    assert not run.close()
    points = client.get_metric_history(grown.trials[trial.name].info.run_id, "loss")
    assert sorted(point.step for point in points) == [*range(5, 41, 5), 45]


# mlflow's flavor asks for an adapter of huggingface_hub that is deprecated there; nothing of ours
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_best_encoder_is_registered_once_and_loads(
    tracked: Tracked, server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Tracker(server.uri, tracked.store)
    with monkeypatch.context() as patched:  # where it lies is known: nobody reads the records of a whole store for that
        patched.setattr(ArtifactStore, "artifacts", lambda *_: pytest.fail("the store is listed"))
        address = tracker.register_best(tracked.sweep)
    assert address == "models:/tracked/1", tracker.warnings
    assert tracker.register_best(tracked.sweep) == address
    assert len(tracked.client.search_model_versions("name = 'tracked'")) == 1
    version = tracked.client.get_model_version_by_alias("tracked", "best")
    chosen = tracked.trials["Eq. 1 · seed 0"]
    assert version.run_id == chosen.info.run_id, "dev chooses it, though RCL is two points higher on the test sets"
    assert version.tags["avg_sts"] == "79.3000"
    assert version.description.startswith("Eq. 1 · seed 0, chosen on dev by stsb-dev.\n\n") and "avg_sts 79.30" in version.description
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    mlflow.set_tracking_uri(server.uri)
    mlflow.set_registry_uri(server.uri)
    loaded = mlflow.sentence_transformers.load_model("models:/tracked@best", dst_path=str(tmp_path))
    expected = loaded.encode(["a dog runs", "music"])
    assert expected.shape == (2, 32)
    got = mlflow.pyfunc.load_model("models:/tracked@best", dst_path=str(tmp_path)).predict(["a dog runs", "music"])
    assert got == pytest.approx(expected, abs=1e-6)  # the same weights, twice
    assert not {path.name for path in tmp_path.rglob("*")} & {*OWN_FILES}, "places and recipes of the store are no part of a model"


def test_trials_are_children_of_the_sweep_with_their_lineage_and_the_sweep_shows_its_result(
    tracked: Tracked, server: MlflowServer, tmp_path: Path
) -> None:
    assert set(tracked.trials) == {trial.name for trial in tracked.plan.trials}
    parent = tracked.parent
    for trial in tracked.sweep.trials:
        run = tracked.trials[trial.name]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert [place.rpartition("-")[2] for place in run.data.tags["sentdist.stages"].split()] == [*trial.stages]
    assert {run.info.status for run in tracked.runs()} == {"FINISHED"}
    for name in ("report.md", "report.html", "figures/curve.svg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("<p>Report</p>")
    tracker = Tracker(server.uri, tracked.store)
    tracker.log_report(tracked.sweep, tmp_path)
    parent = tracked.parent
    assert not tracker.warnings and parent.info.status == "FINISHED"
    assert tracked.artifacts(parent, "report") == {"report/report.md", "report/report.html", "report/figures"}
    assert parent.data.tags["sentdist.report"] in tracked.artifacts(parent, "report"), "where the link of the note leads"
    note = parent.data.tags["mlflow.note.content"]
    assert "[Report](#/experiments/" in note and "5 of 5 trials with scores" in note
    assert "Best on dev: Eq. 1, stsb-dev 80.50 (mean of 1 training)." in note and "79.30" in note
    assert {name: parent.data.metrics[name] for name in ("best_dev_score", "avg_sts")} == {"best_dev_score": 80.5, "avg_sts": 79.3}
    assert "recipe.yaml" in tracked.artifacts(parent)
