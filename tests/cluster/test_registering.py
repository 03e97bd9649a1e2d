"""Drivers that register the best encoder of one sweep at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking.search_runs import rebuild
from tests.support.mlflow_fixtures import MlflowServer, make_up, small_sweep

pytestmark = pytest.mark.cluster

NUM_DRIVERS = 3

DRIVER = """
import sys
import mlflow.pyfunc  # the slow imports, before all drivers begin
from mlflow import MlflowClient
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep
from sentdist.tracking.mlflow_tracker import MlflowTracker
_, uri, root, name = sys.argv
store = ArtifactStore(root)
tracker = MlflowTracker(uri, store)
print("ready", flush=True)
sys.stdin.readline()
print(tracker.register_best(load_sweep(store, name)), tracker.warnings, flush=True)
"""


def test_drivers_at_once_register_one_encoder_once(
    server: MlflowServer, client: MlflowClient, encoder_folder: Path, tmp_path: Path
) -> None:
    plan, store = small_sweep("contested", num_phi_sets=1), ArtifactStore(tmp_path)
    save_sweep(store, sweep_record(plan))
    for stage in plan.stages:
        make_up(stage, store, encoder=encoder_folder)
    rebuild(store, server.uri, "contested")
    command = [sys.executable, "-c", DRIVER, server.uri, str(tmp_path), "contested"]
    drivers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(NUM_DRIVERS)]
    try:
        for driver in drivers:
            assert driver.stdout is not None and driver.stdout.readline() == "ready\n"
        for driver in drivers:
            assert driver.stdin is not None
            driver.stdin.write("go\n")
            driver.stdin.flush()
        answers = [driver.communicate(timeout=300)[0] for driver in drivers]
    finally:
        for driver in drivers:
            driver.kill()
    assert set(answers) == {"models:/contested/1 ()\n"}
    (version,) = client.search_model_versions("name = 'contested'")
    assert client.get_model_version_by_alias("contested", "best").version == version.version
    experiment = client.get_experiment_by_name("contested")
    assert experiment is not None
    (model,) = client.search_logged_models([experiment.experiment_id])
    assert version.source == f"models:/{model.model_id}"
