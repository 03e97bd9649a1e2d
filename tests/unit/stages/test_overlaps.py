"""Overlaps as stages: what is compared with what, what is recorded, and what reports and the command say of it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.recipe.stage import Json
from tests.support.tiny_data import tiny_values, write_data

ON_ITS_TEST: dict[str, Json] = {"source": "sts/stsb", "split": "test", "columns": ["sentence1", "sentence2"]}


def test_the_command_counts_and_writes_the_items(tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir, corpus=ON_ITS_TEST), sort_keys=False))
    data = write_data(tmp_path / "data")
    done = CliRunner().invoke(app, ["plan", str(recipe), "--leaks", "--data", str(data), "--store", str(tmp_path / "store")])
    assert done.exit_code == 0, done.output
    assert "sts-stsb" in done.output and ".sentdist/leaks/tiny.csv" in done.output
    rows = list(csv.DictReader((tmp_path / ".sentdist/leaks/tiny.csv").read_text().splitlines()))
    own = [row for row in rows if row["training data"] == "sts-stsb"]
    assert len(own) == 40 and {row["level"] for row in own} == {"exact"} and own[0]["one"] == own[0]["train_one"]
