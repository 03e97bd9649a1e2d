"""An encoder that is frozen: its weights stay to the last bit, and the head learns alike on every engine and any number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.heads import HEADS_FILE
from sentdist.learning.learner import Learner, encoder_weights, head_weights
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Optimization
from sentdist.objectives.learned.regression import RegressionLoss
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages.inputs import folder_of
from sentdist.stages.train import TrainSession
from tests.parity.processes import run_in_processes
from tests.parity.toy import WIDTH, ToyEncoder, toy_batches
from tests.support import make
from tests.support.building import run_local
from tests.support.graded_data import regression_values, write_graded
from tests.support.tiny_data import tiny_plan

pytestmark = pytest.mark.parity

NUM_STEPS = 12
# The head's gradient has norms of 10 to 40: clipping takes part, and so do weight decay and warm-up.
OPTIMIZATION = Optimization(num_steps=NUM_STEPS, lr=1e-2, warmup_fraction=0.2, weight_decay=0.1, clip_norm=15.0)
ENGINES: tuple[str | int, ...] = ("torch", 0, 3)

Outcome = tuple[list[float], list[float], dict[str, Tensor]]


def learner(*, dropout: float = 0.0, freeze_encoder: bool = True) -> Learner:
    torch.manual_seed(5)
    objective = make.regression(width=WIDTH, label_range=(0.0, 5.0), loss="smooth_k2", slope=2.0, threshold=0.25)
    return Learner(ToyEncoder(dropout=dropout), objective, freeze_encoder=freeze_encoder)


def engine_of(kind: str | int, one: Learner, optimization: Optimization = OPTIMIZATION) -> Engine:
    return TorchEngine(one, optimization) if kind == "torch" else DeepSpeedEngine(one, optimization, zero_stage=int(kind))


def train(rank: int, world_size: int, kinds: tuple[str | int, ...], micro_batch: int | None = None) -> dict[str | int, Outcome]:
    """(losses, gradient norms, weights) by engine."""
    results = {}
    for kind in kinds:
        one = learner()
        engine, objective = engine_of(kind, one), one.heads
        batches = toy_batches(NUM_STEPS, rank=rank, world_size=world_size, num_columns=2)
        assert isinstance(objective, RegressionLoss)
        reports = list(train_steps(engine, objective, batches, micro_batch=micro_batch))
        results[kind] = ([report.loss for report in reports], [report.grad_norm for report in reports], engine.weights())
    return results


@pytest.mark.parametrize(("world_size", "kinds", "micro_batch"), [(2, ENGINES, None), (2, ("torch", 3), 3)])
def test_engines_and_world_sizes_move_the_head_alike_and_the_encoder_not(
    world_size: int, kinds: tuple[str | int, ...], micro_batch: int | None
) -> None:
    losses, norms, weights = train(0, 1, ("torch",))["torch"]
    assert min(norms) < 15.0 < max(norms), "clipping should take part in some steps, not in all"
    before = learner().state_dict()
    for kind, found in run_in_processes(train, world_size, kinds, micro_batch)[0].items():
        assert found[0] == pytest.approx(losses, rel=1e-5), kind
        assert found[1] == pytest.approx(norms, rel=1e-4), kind
        assert found[2].keys() == weights.keys() == before.keys()
        for name, weight in encoder_weights(found[2]).items():
            assert torch.equal(weight, before[f"encoder.{name}"]), (kind, name)
        for name, weight in head_weights(found[2]).items():
            torch.testing.assert_close(weight, weights[f"heads.{name}"], atol=2e-6, rtol=0)  # as in test_engines.py
            assert (weight - before[f"heads.{name}"]).abs().max() > 1e-2, (kind, name)


@pytest.mark.parametrize("micro_batch", [None, 5])
def test_nothing_goes_back_through_it_and_no_pass_is_computed_again(micro_batch: int | None) -> None:
    passes = {}
    for freeze_encoder in (True, False):
        one = learner(freeze_encoder=freeze_encoder)
        begun: list[bool] = []
        ended: list[bool] = []
        one.encoder.register_forward_pre_hook(lambda *given, begun=begun: begun.append(True))
        one.encoder.register_forward_hook(lambda *given, ended=ended: ended.append(given[-1].requires_grad))
        assert isinstance(one.heads, RegressionLoss)
        list(train_steps(engine_of("torch", one), one.heads, toy_batches(1, num_columns=2), micro_batch=micro_batch))
        assert set(ended) == {not freeze_encoder}
        passes[freeze_encoder] = len(begun)
    assert passes == ({True: 1, False: 1} if micro_batch is None else {True: 4, False: 8})  # 16 sentences


def two_stages(encoder: Path, **of_first: Json) -> dict[str, Json]:
    """The released first stage, its head alone, and a second one that goes on with encoder and head."""
    smooth: dict[str, Json] = {"name": "regression", "loss": "smooth_k2", "slope": 2.0, "threshold": 0.25, "boundary": "left_mask"}
    frozen: Json = {"freeze_encoder": True, "layer_decay": 1.0}
    return regression_values(
        encoder,
        baseline=None,
        methods={
            "base": {},
            "head": {"objective": smooth, "training": frozen, "select": False} | of_first,
            "both": {"objective": smooth | {"keep_head": True}, "start": "head", "corpus": "filtered"},
        },
    )


def test_a_first_stage_gives_its_encoder_as_it_was_and_a_head_to_go_on_with(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(two_stages(tiny_encoder_dir), data=write_graded(tmp_path / "data"), store=tmp_path / "store")
    artifacts = {artifact.record.key: artifact for artifact in run_local(plan, context)}
    scores = {trial.method: artifacts[trial.key].record.results["stsb"] for trial in plan.trials}
    assert scores["head"] == scores["base"] != scores["both"]
    stages = {trial.method: trial.scores.encoder for trial in plan.trials if isinstance(trial.scores.encoder, Train)}
    first = folder_of(stages["head"], context)
    before, after = load_file(tiny_encoder_dir / "model.safetensors"), load_file(first / "model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(after[name], weight) for name, weight in before.items())
    second = TrainSession(stages["both"], context, make_engine=TorchEngine, bank=None)
    kept = load_file(first / HEADS_FILE)
    assert all(torch.equal(head_weights(second.engine.weights())[name], weight) for name, weight in kept.items())
    results = artifacts[stages["head"].key].record.results
    assert (results["best_step"], results["best_dev_score"], results["num_steps"]) == (None, None, 7)
    assert "freeze_encoder" in (first / "README.md").read_text()
