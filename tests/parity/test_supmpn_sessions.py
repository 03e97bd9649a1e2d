"""SupMPN from a recipe to scores: all variants, alone and with regulators, shared by two ranks, in micro-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.learning.engine import TorchEngine
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from tests.parity.processes import run_in_processes
from tests.support.groups_data import groups, supmpn_values, write_inference
from tests.support.tiny_data import tiny_plan

pytestmark = pytest.mark.parity

# float32 sums in another order; a dozen steps of AdamW at 1e-3 keep the difference near the last digits
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}


def training_of(plan: Plan, method: str) -> Train:
    found = next(trial.scores.encoder for trial in plan.trials if trial.method == method)
    assert isinstance(found, Train)
    return found


def train(values: dict[str, Json], data: Path, store: Path, method: str, **runtime: Json) -> dict[str, torch.Tensor]:
    """The parameters of a method's encoder after training on this rank's share."""
    plan, context = tiny_plan(values | {"runtime": runtime}, data=data, store=store)
    stage = training_of(plan, method)
    build_here(stage.corpus, context)
    return parameters_after(stage, context)


def parameters_after(stage: Train, context: Context) -> dict[str, torch.Tensor]:
    session = TrainSession(stage, context, make_engine=TorchEngine, bank=None)
    for _ in session.events():
        pass
    return {name: tensor.detach().clone() for name, tensor in session.engine.weights().items()}


def share_of(rank: int, world_size: int, stage: Train, context: Context) -> dict[str, torch.Tensor]:
    return parameters_after(stage, context)


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        if not name.endswith("attention.self.key.bias"):  # softmax ignores it: its true gradient is 0, and AdamW scales rounding up
            torch.testing.assert_close(found[name], expected[name], **TOLERANCE)


def test_two_ranks_train_like_one(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    method = "released"
    values, data = supmpn_values(tiny_encoder_dir, selection=None), write_inference(tmp_path / "data")
    alone = train(values, data, tmp_path / "store", method)
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    first, _ = run_in_processes(share_of, 2, training_of(plan, method), context)  # weights are gathered on the first rank
    assert_close(first, alone)


def test_one_positive_and_one_negative_is_supervised_simcse(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = supmpn_values(tiny_encoder_dir, selection=None, corpus=groups(1, 1))
    data = write_inference(tmp_path / "data")
    assert_close(train(values, data, tmp_path / "store", "supmpn"), train(values, data, tmp_path / "store", "simcse"))
