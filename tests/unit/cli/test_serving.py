"""`sentdist serve` without MLflow: where the server is started."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist import machine as sigterm
from sentdist.cli import app
from sentdist.services.processes import free_port
from sentdist.tracking import registry as served_model


def test_a_server_that_is_away_is_reported_with_what_to_do() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = CliRunner().invoke(app, ["serve", "models:/demo@best", "--uri", uri, "--port", str(free_port())])
    assert done.exit_code == 2
    assert f"MLflow at {uri} is away" in done.output and "training goes on" not in done.output, done.output
    assert "Start it (`sentdist up`), or name another: `sentdist serve MODEL --uri ADDRESS`." in done.output


def test_a_port_that_is_taken_or_none_is_reported_before_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_model, "verified_copy", lambda *_: pytest.fail("downloaded"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["serve", "models:/demo@best", "--port", str(number)])
    assert done.exit_code == 2 and f"port {number}, wanted by the encoder: found it in use by" in done.output, done.output
    assert "sentdist serve MODEL --port" in done.output and "SENTDIST_PORT" not in done.output
    assert CliRunner().invoke(app, ["serve", "models:/demo@best", "--port", "99999"]).exit_code == 2


def _stand_in(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For Python, which would start MLflow."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(served_model, "verified_copy", lambda model, uri, target: target)
    monkeypatch.chdir(folder)


def test_a_served_model_imports_nothing_from_the_folder_that_it_is_served_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In /tmp an `mlflow.py` of another user would run: Python and uvicorn import from the folder that they are started in."""
    _stand_in(f'(pwd; printf "%s\\n" "$@") >{tmp_path}/started', tmp_path, monkeypatch)
    done = CliRunner().invoke(app, ["serve", "models:/demo@best", "--port", "5002"])
    assert done.exit_code == 0, done.output
    place, *words = (tmp_path / "started").read_text().splitlines()
    assert words[0] == "-P"
    assert place == words[words.index("--model-uri") + 1] and Path(place) != tmp_path


@pytest.mark.parametrize("code", [0, 1, 7])
def test_serving_ends_with_the_exit_code_of_its_server(code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _stand_in(f"exit {code}", tmp_path, monkeypatch)
    assert CliRunner().invoke(app, ["serve", "models:/demo@best"]).exit_code == code


def test_sigterm_ends_serving_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else the copy of the encoder stays in the folder of temporary files, and the server at its port."""
    _stand_in(f"ls -d {tmp_path}/temp/*; kill -TERM $PPID; sleep 1", tmp_path, monkeypatch)
    (tmp_path / "temp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    monkeypatch.setattr(sigterm, "_received", None)
    try:
        assert CliRunner().invoke(app, ["serve", "models:/demo@best"]).exit_code == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not list((tmp_path / "temp").iterdir())
