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
from unittest.mock import Mock

import pytest

from sentdist.errors import RecipeError, ResourceError
from sentdist.recipe.stage import Json
from sentdist.run.health import examine
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking import server as tracking_server
from sentdist.tracking.runs import update
from sentdist.tracking.server import Server, connect, read_password
from sentdist.tracking.tracker import MlflowRun, Tracker, rebuild
from sentdist.tracking.values import Point
from tests.support.mlflow_fixtures import drive, small_sweep
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.waiting import wait_for


def test_bringing_a_store_to_a_server_that_is_away_is_reported_in_a_sentence(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    save_sweep(context.store, sweep_record(plan))
    with pytest.raises(ResourceError, match="is away"):
        rebuild(context.store, "http://127.0.0.1:9")


def test_without_an_address_only_the_store_keeps_track(tmp_path: Path) -> None:
    plan = small_sweep("s")
    tracker = Tracker(None, ArtifactStore(str(tmp_path)))
    tracker.begin_sweep(sweep_record(plan), {stage.key: stage for stage in plan.stages})
    run = tracker.begin(plan.trials[-1].key)
    run.follow([{"step": 1, "loss": 0.5}])
    assert run.close() == [] and not tracker.warnings and tracker.trials_page is None
    tracker.finish_sweep()


def test_a_run_gets_what_it_lacks_in_requests_of_a_size_that_a_server_takes() -> None:
    """A parameter cannot be changed: MLflow refuses the whole request."""
    there = SimpleNamespace(params={"seed": "0"}, tags={"kept": "1", "new": "1"}, metrics={"loss": 1.0, "score": 1.0})
    run: Any = SimpleNamespace(data=there, info=SimpleNamespace(run_id="r", status="FINISHED"))
    client = Mock()
    client.get_metric_history.return_value = [SimpleNamespace(step=3)]
    given = {"seed": "1"} | {f"p{number}": "1" for number in range(150)}
    curve = [Point("loss", 1.0, 0, step) for step in range(1700)]
    update(
        client, run, parameters=given, figures={"score": 1.0, "other": 2.0}, curve=curve, tags={"kept": "1", "new": "2"}, status="FAILED"
    )
    sent = [call.kwargs for call in client.log_batch.call_args_list]
    assert [(len(one["params"]), len(one["metrics"]), len(one["tags"])) for one in sent] == [(100, 800, 0), (50, 800, 0), (0, 100, 1)]
    assert {one.key for request in sent for one in request["params"]} == {f"p{number}" for number in range(150)}
    assert sent[0]["metrics"][0].key == "other" and sent[-1]["tags"][0].value == "2"
    assert 3 not in {one.step for request in sent for one in request["metrics"] if one.key == "loss"}
    client.set_terminated.assert_called_once_with("r", "FAILED", None)


def test_points_that_a_server_did_not_take_are_sent_later_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    run, client, away = MlflowRun(uri="http://127.0.0.1:9", experiment="1", run_id="2"), Mock(), [True]
    client.get_metric_history.return_value = [SimpleNamespace(step=1)]
    monkeypatch.setattr(run._server, "attempt", lambda what, action: None if away.pop() else action(client))
    history: list[dict[str, Json]] = [{"step": step, "loss": step / 10, "at": 1.0, "task": "stsb-dev"} for step in (1, 2)]
    monkeypatch.setattr(run, "_thread", Mock())
    run.follow(history)
    assert not run._send()
    history.append({"step": 3, "loss": 0.3})
    run.follow(history)
    away.append(False)
    assert run._send() and not run._waiting
    (request,) = client.log_batch.call_args_list
    assert [(one.key, one.value, one.step) for one in request.kwargs["metrics"]] == [("loss", 0.2, 2), ("loss", 0.3, 3)]


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
    """After the first message, which is not answered in time, the server is left alone."""
    monkeypatch.setattr(tracking_server, "PAUSE_S", tracking_server.MAX_PAUSE_S)  # a busy machine does not take as long
    run = MlflowRun(uri=slow_server.uri, experiment="1", run_id="0" * 32)
    started = time.perf_counter()
    history: list[dict[str, Json]] = []
    for step in range(400):
        history.append({"step": step, "loss": 1.0, "lr": 1e-5})
        run.follow(history)
    wait_for(lambda: slow_server.num_requests > 0, what="the first values to be sent")
    run.close(timeout_s=0.5)
    assert slow_server.num_answers == 0 and time.perf_counter() - started < ANSWERS_AFTER_S / 2, "neither a step nor the end has waited"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    slow_server.num_requests = 0
    plan, store = small_sweep("slow"), ArtifactStore(tmp_path)
    tracker = Tracker(slow_server.uri, store)
    tracker.begin_sweep(sweep_record(plan), {stage.key: stage for stage in plan.stages})
    drive(tracker, plan.stages, store)
    assert (slow_server.num_requests, slow_server.num_answers) == (1, 0)
    assert len(tracker.warnings) == 1 and "is away" in tracker.warnings[0]
