"""How tracking asks a server: addresses, proxies, passwords, sizes of requests, answers that collide or come late."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.errors import RecipeError, ResourceError
from sentdist.execution.health import examine
from sentdist.services.processes import free_port
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking import mlflow_tracker
from sentdist.tracking import server as tracking_server
from sentdist.tracking.mlflow_tracker import MlflowRun, MlflowTracker, make_tracker
from sentdist.tracking.run_update import RunUpdate, batches
from sentdist.tracking.run_values import Point
from sentdist.tracking.search_runs import rebuild
from sentdist.tracking.server import Server, connect, despite_collisions, read_password
from sentdist.tracking.tracker import NullRun, NullTracker
from tests.support.listening import listening
from tests.support.mlflow_fixtures import drive, small_sweep
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.waiting import wait_for


def test_bringing_a_store_to_a_server_that_is_away_is_reported_in_a_sentence(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    save_sweep(context.store, sweep_record(plan))
    with pytest.raises(ResourceError, match="nothing answers there"):
        rebuild(context.store, "http://127.0.0.1:9")


def test_without_an_address_only_the_store_keeps_track(tmp_path: object) -> None:
    tracker = make_tracker(None, ArtifactStore(str(tmp_path)))
    assert isinstance(tracker, NullTracker)
    run = tracker.begin("0" * 16)
    assert isinstance(run, NullRun)
    assert run.close() == []


SIZES = [  # numbers of parameters, metrics and tags, and what stands in each request
    (0, 0, 0, []), (0, 0, 2, [(0, 0, 2)]), (100, 800, 0, [(100, 800, 0)]), (101, 0, 1, [(100, 0, 0), (1, 0, 1)]),
    (1, 1700, 3, [(1, 800, 0), (0, 800, 0), (0, 100, 3)]),
]  # fmt: skip


def test_requests_have_a_size_that_a_server_takes() -> None:
    for num_parameters, num_metrics, num_tags, sizes in SIZES:
        parameters = {f"p{number}": "1" for number in range(num_parameters)}
        metrics = [Point("loss", 1.0, 0, step) for step in range(num_metrics)]
        found = batches(parameters, metrics, {f"t{number}": "1" for number in range(num_tags)})
        assert [(len(batch.parameters), len(batch.metrics), len(batch.tags)) for batch in found] == sizes
        assert [point for batch in found for point in batch.metrics] == metrics
        assert dict(pair for batch in found for pair in batch.parameters) == parameters


def test_what_stands_on_a_run_is_not_sent_again() -> None:
    """A parameter cannot be changed: MLflow refuses the whole request."""
    there = SimpleNamespace(params={"seed": "0"}, tags={"kept": "1", "new": "1"}, metrics={"loss": 1.0, "score": 1.0})
    run: Any = SimpleNamespace(data=there, info=SimpleNamespace(run_id="r", status="FINISHED"), inputs=None)
    sent: list[str] = []

    class Client:
        def log_batch(self, run_id: str, metrics: list[Any], params: list[Any], tags: list[Any]) -> None:
            sent.extend(f"{one.key}={one.value}" for one in (*params, *metrics, *tags))

        def set_terminated(self, run_id: str, status: str, ended_ms: int | None) -> None:
            sent.append(status)

    for status in ("FINISHED", "FAILED"):
        update = RunUpdate(run)
        update.parameters({"seed": "1", "phi": "2"})
        update.tags({"kept": "1", "new": "2"})
        update.figures({"loss": 1.0, "score": 2.0}, 0)
        update.end(status, 1)
        update.send(Client())  # type: ignore[arg-type]
    assert sent == ["phi=2", "score=2.0", "new=2", "FAILED", "phi=2", "score=2.0", "new=2"]


def test_what_another_request_made_meanwhile_is_tried_again_and_nothing_else() -> None:
    from mlflow.exceptions import MlflowException

    def failing(*messages: str) -> list[str]:
        left = list(messages)

        def act() -> str:
            if left:
                raise MlflowException(left.pop(0))
            return "done"

        return [despite_collisions(act, table="registered_model_aliases"), *left]

    collision = "(sqlite3.IntegrityError) UNIQUE constraint failed: registered_model_aliases.name"
    assert failing(collision, collision) == ["done"]
    with pytest.raises(MlflowException, match="no such model"):
        failing("no such model")
    with pytest.raises(MlflowException, match="datasets"):
        failing("UNIQUE constraint failed: datasets.name")
    with pytest.raises(MlflowException, match="UNIQUE"):
        failing(*[collision] * 20)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "SENTDIST_MLFLOW_PASSWORD_FILE"):
        monkeypatch.setenv(name, "")


def _experiment(uri: str) -> tuple[str | None, list[str]]:
    server = Server(uri)
    return server.attempt("find it", lambda client: str(client.get_experiment("7").name)), server.warnings


def test_a_server_that_only_a_proxy_reaches_is_there_and_a_proxy_that_is_away_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(text='{"experiment": {"name": "found"}}') as proxy:
        for scheme in ("http://", ""):
            monkeypatch.setenv("http_proxy", f"{scheme}127.0.0.1:{proxy.port}")
            assert _experiment("http://mlflow.invalid:5000") == ("found", [])
        assert {path.partition("?")[0] for path, _ in proxy.shown} == {"http://mlflow.invalid:5000/api/2.0/mlflow/experiments/get"}
    for address in (f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:port"):
        monkeypatch.setenv("http_proxy", address)
        found, (line,) = _experiment("http://mlflow.invalid:5000")
        assert found is None and "is away" in line


def test_an_address_that_is_none_is_refused() -> None:
    for uri in ("http://mlflow:99999", "http://[::1", "mlflow:5000", "sqlite:///mlflow.db", "./mlruns", "http://", "databricks"):
        with pytest.raises(RecipeError) as refused:
            Server(uri)
        assert refused.value.where == "MLFLOW_TRACKING_URI", uri
    assert Server("https://me:secret@host:5000/prefix/").page == "https://host:5000/prefix", "without its password"


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "SENTDIST_MLFLOW_PASSWORD_FILE"):
        monkeypatch.setenv(name, "")  # so that it is taken back afterwards, whoever sets it


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "password"
    path.write_text("secret\n")
    monkeypatch.setenv("SENTDIST_MLFLOW_PASSWORD_FILE", str(path))
    return path


class _Version(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = self.headers.get("Authorization")
        right = f"Basic {base64.b64encode(b'sentdist:secret').decode()}"
        body = b'{"experiments": []}' if "experiments" in self.path else b"3.17.2"
        self.send_response(200 if said == right else 401)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """What wants the password "secret" of the user sentdist, as MLflow does."""
    http = HTTPServer(("127.0.0.1", 0), _Version)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    thread.join()
    http.server_close()


def test_mlflows_client_shows_the_password_of_the_file(file: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "sentdist")
    assert connect(server).search_experiments() == []


def test_a_file_that_is_gone_is_reported_unless_the_environment_has_the_password(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.unlink()
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "another")
    read_password()
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "")
    with pytest.raises(RecipeError, match="SENTDIST_MLFLOW_PASSWORD_FILE"):
        read_password()


@pytest.mark.parametrize(
    ("user", "text", "state", "reported"),
    [
        ("sentdist", "secret", "good", "3.17.2 answers"),
        ("sentdist", "wrong", "bad", "refuses the password"),
        ("", "secret", "bad", r"source .sentdist/env"),
    ],
)
def test_the_doctor_shows_the_password(
    user: str, text: str, state: str, reported: str, file: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(text)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    finding = next(finding for finding in examine(str(tmp_path), None) if finding.subject == "MLflow")
    assert (finding.state, reported in finding.text) == (state, True)


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
    monkeypatch.setattr(tracking_server, "PAUSE_S", tracking_server.MAX_PAUSE_S)  # a busy machine does not take as long
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
