"""Relational embeddings from a recipe to a chosen checkpoint: one rank and two, torch and DeepSpeed, in micro-batches;
dev scores read the live table."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.engine import TorchEngine
from sentdist.learning.optimization import head_weights
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from tests.parity.processes import run_in_processes
from tests.support.relations_data import relations_values, write_relations_data
from tests.support.tiny_data import tiny_plan

pytestmark = pytest.mark.parity

Found = tuple[dict[str, Tensor], list[float]]  # weights, dev scores


def rse(data: Path, store: Path, encoder: Path, **runtime: Json) -> tuple[Train, Context]:
    """The relational training of the tiny data, with its corpus built."""
    plan, context = tiny_plan(relations_values(encoder, runtime=runtime), data=data, store=store)
    stage = next(trial.scores.encoder for trial in plan.trials if trial.method == "rse")
    assert isinstance(stage, Train)
    build_here(stage.corpus, context)
    return stage, context


def trained(rank: int, world_size: int, stage: Train, context: Context, zero_stage: int | None) -> Found:
    """What a training comes to under the torch engine (None) or a ZeRO stage; weights are on the first rank."""
    make_engine = TorchEngine if zero_stage is None else partial(DeepSpeedEngine, zero_stage=zero_stage)
    session = TrainSession(stage, context, make_engine=make_engine, bank=None)
    for _ in session.events():
        pass
    weights = {name: tensor.detach().clone() for name, tensor in session.engine.weights().items()}
    return weights, [score.score for score in session.progress.history]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> tuple[Train, Context, Path, Found]:
    """One rank, the torch engine, one pass."""
    folder = tmp_path_factory.mktemp("rse")
    stage, context = rse(write_relations_data(folder / "data"), folder / "store", tiny_encoder_dir)
    return stage, context, folder, trained(0, 1, stage, context, None)


def assert_same(found: Found, expected: Found) -> None:
    assert found[0].keys() == expected[0].keys()
    for name, weight in expected[0].items():
        if not name.endswith("attention.self.key.bias"):  # softmax ignores it: its true gradient is 0, and AdamW scales rounding up
            # float32 sums in another order; twenty steps of AdamW at 1e-3, relations at 1e-2
            torch.testing.assert_close(found[0][name], weight, rtol=2e-3, atol=1e-4)
    assert found[1] == pytest.approx(
        expected[1], abs=0.5
    )  # ranks of forty pairs: one exchange of neighbours moves Spearman × 100 by 0.02 to 0.3


def test_relations_are_trained_and_read_by_the_dev_score(alone: tuple[Train, Context, Path, Found]) -> None:
    stage, _, _, (weights, scores) = alone
    (table,) = head_weights(weights).values()
    assert table.shape == (4, 32) and table.abs().max() > 0.05
    assert stage.selection is not None and stage.selection.view.relations is not None and len(scores) >= 2


@pytest.mark.parametrize("zero_stage", [None, 3])
def test_two_ranks_train_and_score_like_one(alone: tuple[Train, Context, Path, Found], zero_stage: int | None) -> None:
    stage, context, _, expected = alone
    assert_same(run_in_processes(trained, 2, stage, context, zero_stage)[0], expected)


def test_micro_batches_train_like_one_pass(alone: tuple[Train, Context, Path, Found], tiny_encoder_dir: Path) -> None:
    _, _, folder, expected = alone
    stage, context = rse(folder / "data", folder / "store", tiny_encoder_dir, micro_batch=7)
    assert_same(trained(0, 1, stage, context, None), expected)
