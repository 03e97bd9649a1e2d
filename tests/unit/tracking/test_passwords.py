"""How MLflow's password reaches those who need it: from a file that only its owner can read, or from the environment."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sentdist.errors import RecipeError
from sentdist.execution.health import examine
from sentdist.tracking.server import connect, read_password


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
