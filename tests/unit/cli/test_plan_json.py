"""`sentdist plan --format json`: the plan for other programs, in names that stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import sentdist
from sentdist.cli import app
from sentdist.store.store import ArtifactStore
from tests.support.tiny_data import tiny_values, write_data

TRIAL = {"name", "method", "seed", "fold", "params", "key", "state"}
STAGE = {"key", "kind", "place", "state", "inputs", "mentions", "sentences", "seconds", "gpu_hours", "bytes"}
PLAN = {
    "recipe", "trials", "stages", "seconds", "gpus", "gpu_hours", "seconds_on_gpus", "bytes", "checkpoint_bytes", "free_bytes",
}  # fmt: skip


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def _planned(*arguments: object) -> dict[str, Any]:
    answer = _call("plan", *arguments, "--format", "json")
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.fixture
def tiny(tiny_encoder_dir: Path, tmp_path: Path) -> tuple[object, ...]:
    """A recipe, with its data and store."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir, seeds=[0])))
    return tmp_path / "tiny.yaml", "--data", write_data(tmp_path / "data"), "--store", tmp_path / "store"


def test_a_plan_has_its_stages_before_and_after_they_are_built(tiny: tuple[object, ...], tmp_path: Path) -> None:
    before = _planned(*tiny)
    assert (
        before.keys() == PLAN
        and all(one.keys() == STAGE for one in before["stages"])
        and all(one.keys() == TRIAL for one in before["trials"])
    )
    plan = sentdist.plan(str(tiny[0]), data=str(tiny[2]), store=str(tiny[4]))
    assert [one["key"] for one in before["stages"]] == [stage.key for stage in plan.stages]
    assert [(one["name"], one["key"]) for one in before["trials"]] == [(trial.name, trial.key) for trial in plan.trials]
    assert {one["state"] for one in (*before["stages"], *before["trials"])} == {"missing"}
    assert before["seconds"] is None and before["gpus"] is before["gpu_hours"] is None
    assert before["bytes"] == sum(one["bytes"] for one in before["stages"]) > 0 and before["checkpoint_bytes"] > 0
    assert not (tmp_path / "store").exists(), "planning writes nothing"

    assert _call("run", *tiny, "--local").exit_code == 0
    after = _planned(*tiny)
    assert {one["state"] for one in (*after["stages"], *after["trials"])} == {"built"}
    assert {(one["seconds"], one["bytes"]) for one in after["stages"]} == {(0.0, 0)} and after["seconds"] == after["bytes"] == 0
    assert {one["place"] for one in after["stages"]} <= {one.record.place for one in ArtifactStore(str(tmp_path / "store")).artifacts()}

    grown = _planned(*tiny, "--set", "seeds=[0, 1]", "--on", "2xH100")
    left = [one for one in grown["stages"] if one["state"] == "missing"]
    assert {one["kind"] for one in left} >= {"train", "scores"} and len(left) < len(grown["stages"])
    assert grown["seconds"] == pytest.approx(sum(one["seconds"] for one in left if one["seconds"] is not None)) and grown["seconds"] > 0
    assert grown["gpus"] == "2xH100" and grown["gpu_hours"] == pytest.approx(sum(one["gpu_hours"] for one in grown["stages"]))
    trained = [one for one in left if one["kind"] == "train"]
    assert all(one["gpu_hours"] > 0 and one["seconds"] > 0 for one in trained)
    assert 0 < grown["seconds_on_gpus"] <= 3600 * grown["gpu_hours"]
