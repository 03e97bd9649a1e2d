"""Sweeps on a real MLflow server: what stands there, and what a restart or another driver adds."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from sentdist.store.record import OWN_FILES
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking.mlflow_tracker import MlflowTracker
from sentdist.tracking.pages import TAG
from sentdist.tracking.search_runs import rebuild
from tests.cluster.tracked_sweep import Tracked
from tests.support.mlflow_fixtures import NUM_POINTS, STS, MlflowServer, drive, grid_sweep, make_up, small_sweep

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def tracked(server: MlflowServer, client: MlflowClient, encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    found = Tracked(small_sweep("tracked"), ArtifactStore(tmp_path_factory.mktemp("store")), client)
    tracker = found.begin(server.uri)
    assert not drive(tracker, found.plan.stages, found.store, encoder=encoder_folder)
    tracker.finish_sweep()
    assert not tracker.warnings
    return found


def test_trials_and_shared_stages_are_children_of_the_sweep(tracked: Tracked) -> None:
    assert set(tracked.trials) == {trial.name for trial in tracked.plan.trials}
    assert Counter(run.data.params["kind"] for run in tracked.shared.values()) == {"corpus": 1, "train": 2, "bank": 2}
    parent = tracked.parent
    for run in (*tracked.trials.values(), *tracked.shared.values()):
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert {run.info.status for run in tracked.runs()} == {"FINISHED"}
    colors = {(run.data.tags["sentdist.cell"], run.data.tags["mlflow.runColor"]) for run in tracked.trials.values()}
    assert len(colors) == len({cell for cell, _ in colors}) == len({color for _, color in colors}) > 1, "one for each cell"


def test_the_experiment_says_what_is_compared(tracked: Tracked) -> None:
    tags = tracked.client.get_experiment(tracked.experiment).tags
    assert tags["mlflow.experiment.primaryMetric.name"] == "best_dev_score"
    assert tags["mlflow.experiment.primaryMetric.greaterIsBetter"] == "true"
    assert "small" in tags["mlflow.note.content"]


def test_curves_scores_and_system_metrics_stand_on_the_trial(tracked: Tracked, tmp_path: Path) -> None:
    run = tracked.trials["RCL (phis={0.01, 0.02}) · seed 0"]
    for name in ("loss", "learning_rate", "grad_norm", "sentences_per_s"):
        points = tracked.client.get_metric_history(run.info.run_id, name)
        assert [point.step for point in points] == [5 * number for number in range(1, NUM_POINTS + 1)]
    assert run.data.metrics["dev_score"] == 80.5
    assert run.data.metrics["avg_sts"] == pytest.approx(sum(run.data.metrics[task] for task in STS) / 7, abs=0.01)
    assert any(name.startswith("system/cpu") for name in run.data.metrics)
    assert tracked.artifacts(run) == {"records.json"}
    shown = json.loads(Path(tracked.client.download_artifacts(run.info.run_id, "records.json", str(tmp_path))).read_text())
    assert {kind: record["kind"] for kind, record in shown.items()} == {"train": "train", "scores": "scores"}


def test_a_shared_training_keeps_its_curve_and_lends_its_figures(tracked: Tracked) -> None:
    trial = tracked.trials["Entropy encoder · seed 0"]
    assert "loss" not in trial.data.metrics
    assert trial.data.metrics["final_loss"] == 0.31
    stage = next(run for run in tracked.shared.values() if run.data.params.get("phi") == "0.01" and run.data.params["kind"] == "train")
    assert "loss" in stage.data.metrics


def test_runs_point_to_one_another(tracked: Tracked) -> None:
    trial = tracked.trials["RCL (phis={0.01, 0.02}) · seed 0"]
    banks = [run for run in tracked.shared.values() if run.data.params["kind"] == "bank"]
    for run in (*banks, tracked.parent):
        assert f"runs/{run.info.run_id}?" in trial.data.tags["mlflow.note.content"]
    for run in banks:
        assert run.data.tags["sentdist.key"] in trial.data.tags["sentdist.uses"]
    small = min(banks, key=lambda run: float(run.data.params["phi"]))
    assert small.data.tags["mlflow.note.content"].count("#/experiments/") == 1 + 2 + 2  # the sweep, its encoder and corpus, two trials


@pytest.mark.parametrize(
    ("filter_string", "number"),
    [
        ("params.method = 'rcl'", 2),
        ("params.phis = '{0.01, 0.02}' and params.num_banks = '2'", 1),
        ("params.`objective.name` = 'rcl' and params.`training.batch_size` = '64' and metrics.avg_sts > 80.5", 1),
        ("params.seed = '0' and tags.`sentdist.trial` != ''", 4),
        ("params.encoder = 'minilm-l6' and params.corpus = 'nli/triplets' and params.`objective.temperature` = '0.05'", 3),
    ],
)
def test_parameters_can_be_searched(tracked: Tracked, filter_string: str, number: int) -> None:
    assert len(tracked.runs(filter_string)) == number


def test_data_sets_that_all_trials_read_are_inputs_of_the_sweep_and_the_rest_of_the_trial(tracked: Tracked) -> None:
    of_sweep, of_trial = (
        {(item.dataset.name, item.dataset.digest, tag.value) for item in run.inputs.dataset_inputs for tag in item.tags}
        for run in (tracked.parent, tracked.trials["Eq. 1 · seed 0"])
    )
    digest = "sha256:0000000000000000"
    assert {("nli/triplets (train)", digest, "train"), ("sts/stsb (test)", digest, "test"), ("sts/sts12", digest, "test")} <= of_sweep
    assert of_trial == {("sts/stsb (dev)", digest, "dev")}  # one method keeps its last weights: it reads no dev set


def test_the_experiment_offers_views_that_lead_to_trials_and_stages(tracked: Tracked) -> None:
    tags = tracked.client.get_experiment(tracked.experiment).tags
    kept = {tag.removeprefix(TAG): json.loads(value) for tag, value in tags.items() if tag.startswith(TAG)}
    note = tracked.parent.data.tags["mlflow.note.content"]
    assert [view["name"] for view in kept.values()] and all(f"viewStateShareKey={view}" in note for view in kept)
    states = {view: json.loads(content["state"]) for view, content in kept.items()}
    assert len(tracked.runs(states["sentdist-trials"]["searchFilter"])) == len(tracked.trials)
    assert len(tracked.runs(states["sentdist-stages"]["searchFilter"])) == len(tracked.shared)


def test_the_sweep_shows_its_table_and_what_sharing_saved(tracked: Tracked) -> None:
    parent = tracked.parent
    note = parent.data.tags["mlflow.note.content"]
    assert "5 of 5 trials are scored" in note
    assert "Best on dev: Eq. 1, stsb-dev 80.50 (mean of 1 training). On the test sets it scores avg_sts 79.30." in note
    assert note.index("Eq. 1 · seed 0") < note.index("RCL (phis={0.01, 0.02})") < note.index("MiniLM, untouched")
    assert {name: parent.data.metrics[name] for name in ("best_dev_score", "avg_sts")} == {"best_dev_score": 80.5, "avg_sts": 79.3}
    assert f"{len(tracked.plan.stages)} stages stand for the {sum(tracked.plan.mentions.values())} that the trials need" in note
    assert {"recipe.yaml", "summary.csv"} <= tracked.artifacts(parent)


def test_doing_it_all_again_changes_nothing(tracked: Tracked, server: MlflowServer) -> None:
    before = tracked.state()
    tracker = pickle.loads(pickle.dumps(tracked.begin(server.uri)))
    for stage in tracked.plan.stages:
        pickle.loads(pickle.dumps(tracker.begin(stage.key))).close()
        artifact = tracked.store.get(stage)
        assert artifact is not None
        tracker.finish(artifact.record)
    tracker.finish_sweep()
    assert not tracker.warnings
    assert tracked.state() == before
    rebuild(tracked.store, server.uri)
    assert tracked.state() == before


def test_a_larger_sweep_of_the_same_name_adds_its_trials(server: MlflowServer, client: MlflowClient, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for number in (1, 2):
        grown = Tracked(small_sweep("grown", num_phi_sets=number), store, client)
        tracker = grown.begin(server.uri)
        drive(tracker, grown.plan.stages, store)
        tracker.finish_sweep()
    assert len(grown.trials) == 5
    assert len(grown.runs()) == 1 + 5 + 5
    (parent,) = (run for run in grown.runs() if "sentdist.sweep" in run.data.tags)
    best = client.get_metric_history(parent.info.run_id, "best_dev_score")
    assert [point.step for point in best] == [4], "dev chooses the same cell among more"


def test_a_training_that_goes_back_to_its_checkpoint_repeats_no_point(tracked: Tracked, server: MlflowServer) -> None:
    tracker = tracked.begin(server.uri)
    trial = next(trial for trial in tracked.plan.trials if trial.method == "fine_tuned")
    run = tracker.begin(trial.key)
    for step in (35, 40, 45):
        run.metrics({"loss": 0.5}, step=step)
    assert not run.close()
    points = tracked.client.get_metric_history(tracked.trials[trial.name].info.run_id, "loss")
    assert [point.step for point in points] == [*range(5, 41, 5), 45]
    tracked.client.delete_run(tracked.trials[trial.name].info.run_id)  # the other tests see the sweep as it was
    rebuild(tracked.store, server.uri, tracked.sweep.name)
    tracker.finish_sweep()


def test_a_rebuild_takes_few_requests_a_trial_and_none_when_all_is_there(server: MlflowServer, tmp_path: Path) -> None:
    """A trial costs: its run, data sets, end, figures with curve and tags, and three files (record, training's record, history)."""
    took = {}
    for number in (4, 12):
        plan, store = grid_sweep(f"grid{number}", num_trials=number), ArtifactStore(tmp_path / str(number))
        save_sweep(store, sweep_record(plan))
        for stage in plan.stages:
            make_up(stage, store)
        before = server.num_requests
        rebuild(store, server.uri, f"grid{number}")
        between = server.num_requests
        rebuild(store, server.uri, f"grid{number}")
        took[number] = between - before, server.num_requests - between
    assert (took[12][0] - took[4][0]) / 8 <= 8  # 7, and one more where two connections make a data set at once
    assert took[12][1] == took[4][1]


def test_what_failed_in_one_process_is_a_failed_run_until_it_is_built(server: MlflowServer, client: MlflowClient, tmp_path: Path) -> None:
    """Under `--local` MLflow is written when all is over, and a failure stands in no record."""
    store, plan = ArtifactStore(tmp_path), small_sweep("in-one-process")
    found = Tracked(plan, store, client)
    save_sweep(store, sweep_record(plan))
    failed = next(trial for trial in plan.trials if trial.method == "fine_tuned")
    lost = {failed.key, failed.scores.encoder.key}
    for stage in (one for one in plan.stages if one.key not in lost):
        make_up(stage, store)
    rebuild(store, server.uri, plan.recipe.name, failures={failed.key: "TrainingDiverged: step 3"})
    run = found.trials[failed.name]
    assert (run.info.status, run.data.tags["sentdist.reason"]) == ("FAILED", "TrainingDiverged: step 3")
    assert run.data.params["method"] == "fine_tuned"
    assert {one.info.status for name, one in found.trials.items() if name != failed.name} == {"FINISHED"}
    assert found.parent.info.status == "FAILED"
    for stage in plan.stages:
        make_up(stage, store)
    rebuild(store, server.uri, plan.recipe.name)
    assert {one.info.status for one in found.runs()} == {"FINISHED"} and "sentdist.reason" not in found.trials[failed.name].data.tags


def test_two_runs_of_one_trial_become_one(tracked: Tracked, server: MlflowServer) -> None:
    """Two drivers that look for a run at the same moment make one each."""
    before = tracked.state()
    for run in tracked.trials.values():
        tags = {name: run.data.tags[name] for name in ("sentdist.trial", "mlflow.parentRunId")}
        tracked.client.create_run(tracked.experiment, run_name="twin", start_time=run.info.start_time + 1, tags=tags)
    rebuild(tracked.store, server.uri, tracked.sweep.name)
    assert tracked.state() == before


def test_a_report_is_kept_on_the_sweep(tracked: Tracked, server: MlflowServer, tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("# Report")
    (tmp_path / "report.html").write_text("<h1>Report</h1>")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curve.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    tracker = MlflowTracker(server.uri, tracked.store)
    tracker.log_report(tracked.sweep, tmp_path)
    assert not tracker.warnings
    assert tracked.artifacts(tracked.parent, "report") == {"report/report.md", "report/report.html", "report/figures"}
    assert "[Report](#/experiments/" in tracked.parent.data.tags["mlflow.note.content"]
    assert tracked.parent.data.tags["sentdist.report"] in tracked.artifacts(tracked.parent, "report"), "where that link leads"
    assert tracked.parent.info.status == "FINISHED"


# mlflow's flavor asks for an adapter of huggingface_hub that is deprecated there; nothing of ours
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_best_encoder_is_registered_once_and_loads(
    tracked: Tracked, server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = MlflowTracker(server.uri, tracked.store)
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
    assert version.description.startswith("Eq. 1 · seed 0, chosen on dev by stsb-dev.\n\n")
    assert "the highest of 3 cells" in version.description and "which had no say: avg_sts 79.30" in version.description
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    mlflow.set_tracking_uri(server.uri)
    mlflow.set_registry_uri(server.uri)
    loaded = mlflow.sentence_transformers.load_model("models:/tracked@best", dst_path=str(tmp_path))
    expected = loaded.encode(["a dog runs", "music"])
    assert expected.shape == (2, 32)
    got = mlflow.pyfunc.load_model("models:/tracked@best", dst_path=str(tmp_path)).predict(["a dog runs", "music"])
    assert got == pytest.approx(expected, abs=1e-6)  # the same weights, twice
    assert not {path.name for path in tmp_path.rglob("*")} & {*OWN_FILES}, "places and recipes of the store are no part of a model"
    model_id = str(version.source).removeprefix("models:/")
    other = tracked.client.create_model_version("tracked", version.source, run_id=version.run_id, model_id=model_id)
    tracked.client.set_registered_model_alias("tracked", "best", other.version)
    assert tracker.register_best(tracked.sweep) == address
    assert tracked.client.get_model_version_by_alias("tracked", "best").version == version.version, "what dev chooses now is the best"
