"""`mlflow models serve` on the registered encoder: sentences are posted, its embeddings come back. As the README says it, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient

from sentdist.learning.card import EncoderCard
from sentdist.learning.encode import encode
from sentdist.learning.encoder import SentenceEncoder
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking.casting import Casting
from sentdist.tracking.registry import register_best_encoder
from sentdist.tracking.sweep_runs import SweepRuns
from tests.encoders import SENTENCES
from tests.mlflow_scenes import make_up, small_sweep
from tests.waiting import wait_for

START_S = 300.0  # a server of MLflow's imports torch and sentence-transformers, on a machine many times slower than usual


@pytest.fixture(autouse=True)
def addresses_as_before() -> Iterator[None]:
    """MLflow writes the address it is given into the environment, where the tests that follow would find it."""
    before = os.environ.copy()
    yield
    mlflow.set_tracking_uri("")
    mlflow.set_registry_uri("")
    os.environ.clear()
    os.environ.update(before)


def _registered(folder: Path, encoder: Path) -> str:
    """A finished sweep whose trainings all gave this encoder, in a local MLflow on SQLite; the address of its database."""
    uri = f"sqlite:///{folder}/mlflow.db"
    mlflow.set_tracking_uri(uri)  # without a server, MLflow looks there for the model behind a version
    mlflow.set_registry_uri(uri)
    client = MlflowClient()
    client.create_experiment("served", artifact_location=(folder / "artifacts").as_uri())
    plan, store = small_sweep("served", num_phi_sets=1), ArtifactStore(folder / "store")
    sweep = sweep_record(plan)
    save_sweep(store, sweep)
    stages = {stage.key: stage.canonical() for stage in plan.stages}
    runs = SweepRuns(Casting(sweep=sweep, stages=stages), store, page="http://localhost")
    runs.open(client, is_running=True)
    for stage in plan.stages:
        runs.finish(client, make_up(stage, store, encoder=encoder).record)
    assert register_best_encoder(client, runs) == "models:/served/1"
    return uri


class ServedModel:
    """`mlflow models serve` on a free port of loopback, ended by its process group."""

    def __init__(self, model: str, *, uri: str, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        port = self._url.rpartition(":")[2]
        command = [sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", model, "--env-manager", "local", "--port", port]
        path = (
            f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"  # it calls uvicorn by its name, as an active environment has it
        )
        environment = os.environ | {
            "PATH": path,
            "MLFLOW_TRACKING_URI": uri,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._log = folder / "serve.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)

    def wait(self) -> None:
        wait_for(self._is_ready, what=f"the served model: {self._log.read_text()[-2000:]}", seconds=START_S)

    def embed(self, sentences: list[str]) -> np.ndarray:
        request = urllib.request.Request(
            f"{self._url}/invocations",
            data=json.dumps({"inputs": sentences}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            return np.array(json.load(answer)["predictions"])

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # its own session: the workers die with it
        self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{self._url}/ping", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


# mlflow's own imports and pages warn of deprecations; nothing of ours
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_registered_encoder_answers_requests(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    encoder.save(folder, card=EncoderCard(base_model="tiny", objective="none"))
    uri = _registered(tmp_path, folder)
    served = ServedModel("models:/served@best", uri=uri, folder=tmp_path)
    try:
        served.wait()
        # float32 embeddings through JSON, from sentence-transformers' padded batches
        np.testing.assert_allclose(served.embed(list(SENTENCES)), encode(encoder, SENTENCES), atol=1e-5)
        assert served.embed(["one sentence"]).shape == (1, 32)
    finally:
        served.stop()
