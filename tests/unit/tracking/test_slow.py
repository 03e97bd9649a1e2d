"""A tracking server that answers slowly: no step waits for it, and a sweep hardly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_record
from sentdist.tracking import mlflow_tracker, server
from sentdist.tracking.mlflow_tracker import MlflowRun, MlflowTracker
from tests.support.mlflow_fixtures import drive, small_sweep
from tests.support.waiting import wait_for

ANSWERS_AFTER_S = 60.0  # longer than a test takes: whoever waits for an answer sees one counted


@dataclass
class SlowServer:
    """A server that answers everything with nothing, a minute later."""

    uri: str = ""
    num_requests: int = 0
    num_answers: int = 0


@pytest.fixture
def slow_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowServer]:
    """MLflow's client does not give up before the server answers."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")
    closing, slow = threading.Event(), SlowServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            slow.num_requests += 1
            closing.wait(ANSWERS_AFTER_S)
            slow.num_answers += 1
            body = b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *arguments: object) -> None:
            """Silent."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    slow.uri = f"http://127.0.0.1:{listening.server_port}"
    yield slow
    closing.set()
    listening.shutdown()
    listening.server_close()


def test_no_step_waits_for_a_slow_server(slow_server: SlowServer) -> None:
    """Steps of about 8 ms, each of which tells its values: telling them takes less than a hundredth of that."""
    run = MlflowRun(uri=slow_server.uri, experiment_id="1", run_id="0" * 32)
    matrix = np.random.default_rng(0).normal(size=(600, 600))
    telling: list[float] = []
    steps: list[float] = []
    for step in range(400):
        started = time.perf_counter()
        matrix = np.tanh(matrix @ matrix.T / 600)
        worked = time.perf_counter()
        run.metrics({"loss": 1.0, "grad_norm": 1.0, "lr": 1e-5, "sentences_per_s": 100.0}, step=step)
        telling.append(time.perf_counter() - worked)
        steps.append(worked - started)
    assert median(telling) < 0.01 * median(steps)  # medians: on a busy machine any of them may lose its core
    wait_for(lambda: slow_server.num_requests > 0, what="the first values to be sent")
    run.close(timeout_s=0.5)
    assert slow_server.num_answers == 0  # neither a step nor the end has waited for one


def test_a_sweep_waits_for_a_slow_server_once(slow_server: SlowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine stages, each with two messages: after the first one, which nobody answered in time, the server is left alone."""
    monkeypatch.setattr(mlflow_tracker, "WAIT_S", 2.0)
    monkeypatch.setattr(server, "PAUSE_S", server.MAX_PAUSE_S)  # a busy machine does not take as long
    plan, store = small_sweep("slow"), ArtifactStore(tmp_path)
    tracker = MlflowTracker(slow_server.uri, store)
    tracker.begin_sweep(sweep_record(plan), {stage.key: stage for stage in plan.stages})
    drive(tracker, plan.stages, store)
    assert (slow_server.num_requests, slow_server.num_answers) == (1, 0)
    assert len(tracker.warnings) == 1 and "no answer within" in tracker.warnings[0]
