"""A tracking server that answers slowly: no step waits for it, and a sweep hardly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_record
from sentdist.tracking import mlflow_tracker, server
from sentdist.tracking.mlflow_tracker import MlflowTracker
from sentdist.tracking.run_handle import MlflowRun
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


def test_no_step_waits_for_a_slow_server_and_a_sweep_once(slow_server: SlowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine stages, each with two messages: after the first one, which nobody answered in time, the server is left alone."""
    monkeypatch.setattr(mlflow_tracker, "WAIT_S", 2.0)
    monkeypatch.setattr(server, "PAUSE_S", server.MAX_PAUSE_S)  # a busy machine does not take as long
    run = MlflowRun(uri=slow_server.uri, experiment_id="1", run_id="0" * 32)
    started = time.perf_counter()
    for step in range(400):
        run.metrics({"loss": 1.0, "lr": 1e-5}, step=step)
    wait_for(lambda: slow_server.num_requests > 0, what="the first values to be sent")
    run.close(timeout_s=0.5)
    assert slow_server.num_answers == 0 and time.perf_counter() - started < ANSWERS_AFTER_S / 2, "neither a step nor the end has waited"
    slow_server.num_requests = 0
    plan, store = small_sweep("slow"), ArtifactStore(tmp_path)
    tracker = MlflowTracker(slow_server.uri, store)
    tracker.begin_sweep(sweep_record(plan), {stage.key: stage for stage in plan.stages})
    drive(tracker, plan.stages, store)
    assert (slow_server.num_requests, slow_server.num_answers) == (1, 0)
    assert len(tracker.warnings) == 1 and "no answer within" in tracker.warnings[0]
