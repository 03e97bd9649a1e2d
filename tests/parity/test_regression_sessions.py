"""Regression as stages: two stages end to end, interrupted and resumed, and shared by two ranks, head and row labels included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sentdist.errors import EncoderError
from sentdist.learning.engine import TorchEngine
from sentdist.learning.heads import HEADS_FILE
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.inputs import folder_of
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from sentdist.store.store import RECORD, Artifact
from tests.parity.processes import run_in_processes
from tests.support.building import run_local
from tests.support.graded_data import regression_values, write_graded
from tests.support.tiny_data import tiny_plan

pytestmark = pytest.mark.parity

# float32 sums in another order; seven steps of AdamW at 1e-3 keep the difference near the last digits
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}


def train_of(plan: Plan, method: str) -> Train:
    (found,) = (trial.scores.encoder for trial in plan.trials if trial.method == method)
    assert isinstance(found, Train)
    return found


def session_of(stage: Train, context: Context) -> TrainSession:
    return TrainSession(stage, context, make_engine=TorchEngine, bank=None)


def with_inputs(values: dict[str, Json], method: str, data: Path, store: Path) -> tuple[Train, Context]:
    """The training of a method, all that it needs built."""
    plan, context = tiny_plan(values, data=data, store=store)
    stage = train_of(plan, method)
    for needed in plan.stages:
        if needed.key in {one.key for start in (stage, stage.start) if start is not None for one in start.inputs}:
            build_here(needed, context)
    return stage, context


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> tuple[Plan, Context, dict[str, Artifact]]:
    """Every method of the tiny regression recipe, built in this process; artifacts by key."""
    folder = tmp_path_factory.mktemp("regression")
    values = regression_values(tiny_encoder_dir)
    plan, context = tiny_plan(values, data=write_graded(folder / "data"), store=folder / "store")
    return plan, context, {artifact.record.key: artifact for artifact in run_local(plan, context)}


def test_stage_2_starts_from_the_first_encoder_with_a_new_head_or_the_old_one(built: tuple[Plan, Context, dict[str, Artifact]]) -> None:
    plan, context, _ = built
    first = folder_of(train_of(plan, "stage_1"), context)
    head, model = load_file(first / HEADS_FILE), load_file(first / "model.safetensors")
    for method, keeps in (("filtered", False), ("longer", True)):
        session = session_of(train_of(plan, method), context)
        weights = session.engine.weights()
        name = next(name for name in model if name.endswith("embeddings.word_embeddings.weight"))
        (found,) = (tensor for other, tensor in weights.items() if other.endswith(name))
        assert torch.equal(found, model[name])
        assert torch.equal(weights["heads.head.linear.weight"], head["head.linear.weight"]) is keeps


def test_a_head_that_is_gone_is_named(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """An artifact written by hand, or by an older version."""
    data = write_graded(tmp_path / "data")
    stage, context = with_inputs(regression_values(tiny_encoder_dir), "longer", data, tmp_path / "store")
    assert stage.start is not None
    folder = folder_of(stage.start, context)
    (folder / HEADS_FILE).unlink()
    record = json.loads((folder / RECORD).read_text())
    del record["files"][HEADS_FILE], record["digests"], record["sha256"]
    (folder / RECORD).write_text(json.dumps(record))
    with pytest.raises(EncoderError, match="keep_head: found a checkpoint without heads"):
        session_of(stage, context)


def train_on_rank(rank: int, world_size: int, values: dict[str, Json], data: Path, store: Path) -> dict[str, Any]:
    plan, context = tiny_plan(values, data=data, store=store)
    session = session_of(train_of(plan, "filtered"), context)
    losses = [event.loss for event in session.events() if hasattr(event, "loss")]
    return {"losses": losses, "weights": session.engine.weights()}


def test_two_ranks_end_like_one(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Dropout off: each rank reads the labels of its own rows, and layer-wise rates and head move alike."""
    data, values = write_graded(tmp_path / "data"), regression_values(tiny_encoder_dir)
    stage, context = with_inputs(values, "filtered", data, tmp_path / "store")
    alone = session_of(stage, context)
    losses = [event.loss for event in alone.events() if hasattr(event, "loss")]
    first, _ = run_in_processes(train_on_rank, 2, values, data, tmp_path / "store")
    assert first["losses"] == pytest.approx(losses, rel=1e-5)
    weights = alone.engine.weights()
    for name, found in first["weights"].items():
        if not name.endswith("attention.self.key.bias"):  # softmax ignores it: its true gradient is 0, AdamW scales the rounding error up
            torch.testing.assert_close(found, weights[name], msg=lambda text, name=name: f"{name}: {text}", **TOLERANCE)
