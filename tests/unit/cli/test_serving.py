"""`sentdist serve` without MLflow: where the server is started."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.execution import sigterm
from sentdist.tracking import served_model


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
    _stand_in(f'(pwd; printf "%s\\n" "$@") >{tmp_path}/started; exit 7', tmp_path, monkeypatch)
    done = CliRunner().invoke(app, ["serve", "models:/demo@best", "--port", "5002"])
    assert done.exit_code == 7, "that of the server"
    place, *words = (tmp_path / "started").read_text().splitlines()
    assert words[0] == "-P"
    assert place == words[words.index("--model-uri") + 1] and Path(place) != tmp_path


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
