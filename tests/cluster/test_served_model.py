"""`sentdist serve` on the registered encoder: sentences are posted, its embeddings come back.
As the README says it, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.services.processes import free_port
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking.mlflow_tracker import MlflowTracker
from sentdist.tracking.search_runs import rebuild
from tests.support.mlflow_fixtures import MlflowServer, make_up, small_sweep
from tests.support.tiny_encoders import SENTENCES
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
START_S = 300.0  # a server of MLflow's imports torch and sentence-transformers, on a machine many times slower than usual


def _registered(server: MlflowServer, folder: Path, encoder: Path) -> None:
    """A finished sweep whose trainings all gave this encoder, on a server."""
    plan, store = small_sweep("served", num_phi_sets=1), ArtifactStore(folder / "store")
    sweep = sweep_record(plan)
    save_sweep(store, sweep)
    for stage in plan.stages:
        make_up(stage, store, encoder=encoder)
    rebuild(store, server.uri, "served")
    assert MlflowTracker(server.uri, store).register_best(sweep) == "models:/served/1"


def _command(model: str, *, uri: str, port: str) -> list[str]:
    return [sys.executable, "-m", "sentdist", "serve", model, "--uri", uri, "--port", port]


class ServedModel:
    """`sentdist serve` on a free port of loopback, ended by its process group."""

    def __init__(self, model: str, *, uri: str, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "serve.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                _command(model, uri=uri, port=self._url.rpartition(":")[2]),
                cwd=ROOT,
                env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

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


def _refusal(uri: str) -> str:
    """What `sentdist serve` says instead of serving."""
    done = subprocess.run(
        _command("models:/served@best", uri=uri, port="1"), cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 2 and done.stdout == "", done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_a_registered_encoder_answers_requests_until_a_file_of_it_is_another(
    server: MlflowServer, tiny_encoder_dir: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    _registered(server, tmp_path, encoder_folder)
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    served = ServedModel("models:/served@best", uri=server.uri, folder=tmp_path)
    try:
        served.wait()
        # float32 embeddings through JSON, from sentence-transformers' padded batches
        np.testing.assert_allclose(served.embed(list(SENTENCES)), encode(encoder, SENTENCES), atol=1e-5)
        assert served.embed(["one sentence"]).shape == (1, 32)
        with pytest.raises(urllib.error.HTTPError) as refused:
            served.embed(["one sentence", None])  # type: ignore[list-item]
        assert refused.value.code == 400 and "sentence 2: found null" in refused.value.read().decode()
    finally:
        served.stop()
    _change_files(server)


def _change_files(server: MlflowServer) -> None:
    """As somebody who can write where the server keeps artifacts: one byte of the weights, the loader, a module of code."""
    weights = max((server.folder / "artifacts").rglob("*.safetensors"), key=lambda path: path.stat().st_mtime)
    (folder,) = [parent for parent in weights.parents if (parent / "MLmodel").exists()]
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert f"{weights.relative_to(folder)}: other content" in _refusal(server.uri)
    weights.write_bytes(whole)
    marker = folder / "ran"
    (folder / "code" / "evil_loader.py").write_text(f"open({str(marker)!r}, 'w')")
    assert "code/evil_loader.py: not registered" in _refusal(server.uri)
    model = (folder / "MLmodel").read_text()
    (folder / "MLmodel").write_text(model.replace("loader_module: checked_sentences", "loader_module: evil_loader"))
    assert "evil_loader" in (folder / "MLmodel").read_text()
    assert "MLmodel: " in _refusal(server.uri)
    assert not marker.exists()
