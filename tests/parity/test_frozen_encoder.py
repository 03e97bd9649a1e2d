"""An encoder that is frozen: its weights stay to the last bit, and the head learns alike on every engine and any number of ranks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.checkpoint import DevScore, Progress
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.loop import StepReport, train_steps
from sentdist.learning.objective import HEADS_FILE
from sentdist.learning.optimization import Learner, Optimization, encoder_weights, head_weights, parameter_groups
from sentdist.objectives.learned.regression import RegressionLoss
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.report.paper_page import report_paper
from sentdist.stages.context import folder_of
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from sentdist.store.sweep import save_sweep, sweep_record
from tests.parity.processes import run_in_processes
from tests.parity.toy import WIDTH, ToyEncoder, toy_batches
from tests.support import make
from tests.support.building import run_local
from tests.support.graded_data import regression_values, write_graded
from tests.support.relations_data import relations_values, write_relations_data
from tests.support.tiny_data import tiny_plan
from tests.support.tiny_encoders import tiny_encoder

pytestmark = pytest.mark.parity

NUM_STEPS = 12
# The head's gradient has norms of 10 to 40: clipping takes part, and so do weight decay and warm-up.
OPTIMIZATION = Optimization(num_steps=NUM_STEPS, lr=1e-2, warmup_fraction=0.2, weight_decay=0.1, clip_norm=15.0)
ENGINES: tuple[str | int, ...] = ("torch", 0, 1, 2, 3)
HEAD_SIZE = 3 * WIDTH + 1

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


@pytest.mark.parametrize(("world_size", "kinds", "micro_batch"), [(1, ENGINES, None), (2, ENGINES, None), (2, ("torch", 3), 3)])
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


def test_no_optimizer_has_a_state_for_it(tmp_path: Path) -> None:
    """Engines are given these groups; what the torch engine keeps of them stands in its checkpoint."""
    groups = parameter_groups(learner(), OPTIMIZATION)
    assert sum(parameter.numel() for group in groups for parameter in group["params"]) == HEAD_SIZE
    one = learner()
    engine = engine_of("torch", one)
    assert isinstance(one.heads, RegressionLoss)
    list(train_steps(engine, one.heads, toy_batches(2, num_columns=2)))
    engine.save(tmp_path, progress=Progress(step=2))
    state = torch.load(tmp_path / "engine.pt", weights_only=True)["optimizer"]["state"]
    assert sum(moments["exp_avg"].numel() for moments in state.values()) == HEAD_SIZE


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


def resume(rank: int, world_size: int, folder: str) -> dict[str | int, tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """Weights of 12 steps at a stretch, and of 7 steps, a checkpoint, a new engine and 5 more; dropout on."""
    results = {}
    for kind in ENGINES:
        batches, place = toy_batches(NUM_STEPS, rank=rank, world_size=world_size, num_columns=2), Path(folder) / f"{kind}-{world_size}"
        one = learner(dropout=0.3)
        assert isinstance(one.heads, RegressionLoss)
        whole = engine_of(kind, one)
        torch.manual_seed(100 + rank)
        steps = train_steps(whole, one.heads, batches)
        list(itertools.islice(steps, 7))
        whole.save(place, progress=Progress(step=7, step_in_epoch=7))
        list(steps)
        again = learner(dropout=0.3)
        assert isinstance(again.heads, RegressionLoss)
        resumed = engine_of(kind, again)
        progress = resumed.load(place)
        list(train_steps(resumed, again.heads, batches[progress.step :], start=progress.step))
        results[kind] = whole.weights(), resumed.weights()
    return results


@pytest.mark.parametrize("world_size", [1, 2])
def test_resumed_equals_uninterrupted_with_dropout(world_size: int, tmp_path: Path) -> None:
    for kind, (whole, resumed) in run_in_processes(resume, world_size, str(tmp_path))[0].items():
        assert all(torch.equal(resumed[name], weight) for name, weight in whole.items()), kind


class Watched(TorchEngine):
    """An engine that keeps the gradients of its first step."""

    gradients: dict[str, Tensor] | None = None

    def step(self) -> float:
        if self.gradients is None:
            named = self.learner.named_parameters()
            self.gradients = {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}
        return super().step()


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


def train_of(values: dict[str, Json], data: Path, store: Path, method: str) -> tuple[Train, Any]:
    plan, context = tiny_plan(values, data=data, store=store)
    found = next(trial.scores.encoder for trial in plan.trials if trial.method == method)
    assert isinstance(found, Train)
    build_here(found.corpus, context)
    return found, context


def test_the_head_s_first_gradient_is_that_of_training_both(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Bit for bit, with the encoder's dropouts on, as in the released code."""
    data = write_graded(tmp_path / "data")
    gradients = []
    for freeze_encoder in (True, False):
        training: Json = {"freeze_encoder": freeze_encoder, "layer_decay": 1.0}
        stage, context = train_of(two_stages(tiny_encoder_dir, training=training), data, tmp_path / "store", "head")
        session = TrainSession(stage, context, make_engine=Watched, bank=None)
        next(session.events())
        assert isinstance(session.engine, Watched) and session.engine.gradients is not None
        gradients.append(session.engine.gradients)
    frozen, whole = gradients
    assert set(frozen) == {"heads.head.linear.weight", "heads.head.linear.bias"} < set(whole)
    assert all(torch.equal(gradient, whole[name]) and gradient.abs().max() > 0.1 for name, gradient in frozen.items())


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


def test_the_repository_s_two_stages_stand_under_their_row(tmp_path: Path) -> None:
    """A tiny random encoder of Nomic's architecture, under that checkpoint's name: planned, trained, scored, reported."""
    data = write_graded(tmp_path / "data")
    rows = pq.read_table(data / "sts/stsb.parquet").to_pylist()
    scores = [row | {"subset": "scenes"} for row in pq.read_table(data / "sts/scores.parquet").to_pylist()]
    pq.write_table(pa.Table.from_pylist([*rows, *scores]), data / "sts/stsb.parquet")
    smooth: dict[str, Json] = {"name": "regression", "boundary": "left_mask"}
    values = regression_values(
        tiny_encoder(tmp_path / "nomic-embed-text-v1", "nomic_bert"),
        paper="sts_regression",
        baseline="base",
        corpora={
            "filtered": {
                "kind": "graded",
                "parts": [{"source": "sts/stsb", "scale": "zero_to_five"}, {"source": "sts/sick", "scale": "one_to_five"}],
                "without": ["stsb"],
            }
        },
        methods={
            "base": {},
            "head": {
                "objective": smooth | {"slope": 2.0, "threshold": 0.25},
                "training": {"freeze_encoder": True, "layer_decay": 1.0},
                "select": False,
                "reported": False,
            },
            "ours": {
                "objective": smooth | {"slope": 3.0, "threshold": 0.2, "keep_head": True}, "start": "head", "corpus": "filtered",
            },
        },
    )  # fmt: skip
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    save_sweep(context.store, sweep_record(plan))
    run_local(plan, context)
    page = report_paper(context.store, "sts_regression").markdown.partition("## Table of the repository")[2]
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    under = {line.split(" | ")[0]: after.split(" | ")[0] for line, after in itertools.pairwise(lines) if after.startswith("| ↳")}
    assert {row: ours.partition(" (")[0] for row, ours in under.items()} == {
        "| Nomic Embed Text v1": "| ↳ base", "| Nomic Embed Text v1 + Ours": "| ↳ ours",
    }  # fmt: skip
    assert "regression_emnlp.yaml" not in page, "both rows were run"


def test_relations_alone_are_chosen_by_the_scores_that_they_change(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    whole = relations_values(tiny_encoder_dir)
    methods = whole["methods"]
    assert isinstance(methods, dict)
    found: Any = next(one for one in methods.values() if isinstance(one, dict) and one.get("view"))
    own = {"objective": {"name": "rse"}, "view": found["view"], "training": {"freeze_encoder": True, "learning_rate": 0.05, "epochs": 8}}
    values = whole | {"methods": {"m": own}, "baseline": None, "evaluation": {"tasks": ["stsb"]}}
    stage, context = train_of(values, write_relations_data(tmp_path / "data"), tmp_path / "store", "m")
    session = TrainSession(stage, context, make_engine=TorchEngine, bank=None)
    before = session.engine.weights()
    scores = [event.score for event in session.events() if isinstance(event, DevScore)]
    after = session.engine.weights()
    assert len(set(scores)) > 1 and session.progress.best_score == max(scores)
    assert all(torch.equal(after[name], before[name]) is name.startswith("encoder.") for name in before)


def test_killed_and_resumed_or_stopped_early_it_is_the_same_training(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_graded(tmp_path / "data")
    stage, context = train_of(two_stages(tiny_encoder_dir), data, tmp_path / "store", "head")

    def session(one: Train = stage) -> TrainSession:
        return TrainSession(one, context, make_engine=TorchEngine, bank=None)

    whole = session()  # each one when its turn comes: to make it is to seed
    losses = [event.loss for event in whole.events() if isinstance(event, StepReport)]
    first = session()
    list(itertools.islice(first.events(), 3))
    first.save(tmp_path / "checkpoint")
    second = session()
    second.load(tmp_path / "checkpoint")
    assert [event.loss for event in second.events() if isinstance(event, StepReport)] == losses[3:]
    ours, theirs = whole.engine.weights(), second.engine.weights()
    assert all(torch.equal(theirs[name], weight) for name, weight in ours.items())
    worse = next(step for step, (one, other) in enumerate(itertools.pairwise(losses), start=2) if other >= one)
    stopping: Json = {"reading": "step", "patience": 1}
    stopped, _ = train_of(two_stages(tiny_encoder_dir, stopping=stopping), data, tmp_path / "store", "head")
    assert len(list(session(stopped).events())) == worse < len(losses)


def test_one_sentence_is_encoded_where_none_is_read() -> None:
    """Engines count on a pass at each step: a frozen encoder's is one without a gradient."""
    tokens: TokenBatch = toy_batches(1, num_columns=2)[0].tokens
    one = learner()
    assert not engine_of("torch", one).encode(tokens.take([0])).requires_grad
