"""A tracking server that answers slowly: no step waits for it, and a sweep hardly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_record
from sentdist.tracking.mlflow_tracker import WAIT_S, MlflowTracker
from sentdist.tracking.run_handle import MlflowRun
from tests.support.mlflow_fixtures import drive, small_sweep

ANSWERS_AFTER_S = WAIT_S + 1.0  # before MLflow's client gives up by itself, after 10 s


@pytest.fixture
def slow_server() -> Iterator[str]:
    """The address of a server that answers everything with nothing, seconds later."""
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            closing.wait(ANSWERS_AFTER_S)
            body = b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *arguments: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    closing.set()
    server.shutdown()
    server.server_close()


def test_no_step_waits_for_a_slow_server(slow_server: str) -> None:
    """Steps of about 8 ms, each of which tells its values: telling them takes less than a hundredth of that."""
    run = MlflowRun(uri=slow_server, experiment_id="1", run_id="0" * 32)
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
    assert max(telling) < ANSWERS_AFTER_S / 4
    started = time.perf_counter()
    run.close(timeout_s=0.5)
    assert time.perf_counter() - started < ANSWERS_AFTER_S / 2  # half a second, and no answer is waited for


def test_a_sweep_waits_for_a_slow_server_once(slow_server: str, tmp_path: Path) -> None:
    """Nine stages, each with two messages; every answer takes longer than anybody waits."""
    import mlflow.tracking  # noqa: F401  its import is not what is measured

    plan, store = small_sweep("slow"), ArtifactStore(tmp_path)
    tracker = MlflowTracker(slow_server, store)
    started = time.monotonic()
    tracker.begin_sweep(sweep_record(plan), {stage.key: stage for stage in plan.stages})
    drive(tracker, plan.stages, store)
    assert time.monotonic() - started < 3 * WAIT_S  # a wait at the beginning and one at the end, of eighteen messages
    assert len(tracker.warnings) == 1 and "no answer within" in tracker.warnings[0]
