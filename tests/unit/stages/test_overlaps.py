"""Overlaps as stages: what is compared with what, what is recorded, and what reports and the command say of it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.plan.evaluation import overlaps_of
from sentdist.plan.stage import Json
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.text_stages import build_overlaps
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

ON_ITS_TEST: dict[str, Json] = {"source": "sts/stsb", "split": "test", "columns": ["sentence1", "sentence2"]}


def _world(folder: Path, encoder: Path, *, corpus: Json = ON_ITS_TEST) -> tuple[Plan, Context]:
    """A sweep that trains on its own test set."""
    values = tiny_values(encoder, corpus=corpus, seeds=[0, 1])
    plan, context = tiny_plan(values, data=write_data(folder / "data"), store=folder / "store")
    for overlap in overlaps_of(plan):
        for needed in overlap.inputs:
            build_here(needed, context)
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 40})
    return plan, context


def test_every_corpus_and_dev_set_is_compared_once(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = _world(tmp_path, tiny_encoder_dir)
    overlaps = overlaps_of(plan)
    assert [overlap.label for overlap in overlaps] == ["sts-stsb", "stsb-dev"], "six trainings share one corpus and one dev set"
    assert [len(overlap.inputs) for overlap in overlaps] == [1, 0]
    own, dev = build_overlaps(plan, context)
    counts = own.record.results["tasks"]
    assert isinstance(counts, dict) and counts["stsb"] == {
        "items": 40,
        "exact": 40,
        "normalised": 40,
        "near": 40,
        "sentences": 40,
        "one": 0,
    }
    assert dev.record.results["tasks"]["stsb"]["exact"] < 40  # type: ignore[index, call-overload, operator]
    assert build_overlaps(plan, context)[0].record == own.record, "the store knows it"


def test_the_command_counts_and_writes_the_items(tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir, corpus=ON_ITS_TEST), sort_keys=False))
    data = write_data(tmp_path / "data")
    done = CliRunner().invoke(app, ["leaks", str(recipe), "--data", str(data), "--store", str(tmp_path / "store"), "--out", "found.csv"])
    assert done.exit_code == 0, done.output
    assert "sts-stsb" in done.output and "found.csv" in done.output
    rows = list(csv.DictReader((tmp_path / "found.csv").read_text().splitlines()))
    own = [row for row in rows if row["training data"] == "sts-stsb"]
    assert len(own) == 40 and {row["level"] for row in own} == {"exact"} and own[0]["one"] == own[0]["train_one"]
