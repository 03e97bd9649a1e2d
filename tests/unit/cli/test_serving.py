"""`sentdist serve` without MLflow: where the server is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.tracking import served_model


def test_a_served_model_imports_nothing_from_the_folder_that_it_is_served_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In /tmp an `mlflow.py` of another user would run: Python and uvicorn import from the folder that they are started in."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n(pwd; printf "%s\\n" "$@") >{tmp_path}/started\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(served_model, "verified_copy", lambda model, uri, target: target)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["serve", "models:/demo@best", "--port", "5002"])
    assert done.exit_code == 0, done.output
    place, *words = (tmp_path / "started").read_text().splitlines()
    assert words[0] == "-P"
    assert place == words[words.index("--model-uri") + 1] and Path(place) != tmp_path
