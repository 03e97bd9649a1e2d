"""Real encoders, frozen ones, auxiliary tasks and masked language modelling move equally under
every engine, ZeRO stage and number of ranks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.gather import SharedSentences
from sentdist.learning.loop import train_steps
from sentdist.learning.objective import HEADS_FILE, Projected, WeightedSum
from sentdist.learning.optimization import Learner, Optimization, encoder_weights, head_weights
from sentdist.objectives.channels import Channels
from sentdist.objectives.learned.auxiliary import Adversaries, AuxiliaryLoss, AuxiliaryWeights
from sentdist.objectives.learned.mlm import Vocabulary
from sentdist.objectives.learned.regression import RegressionLoss
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.run import deepspeed_engine
from sentdist.run.deepspeed_engine import DeepSpeedEngine
from sentdist.stages.context import folder_of
from sentdist.stages.train import TrainSession
from tests.parity.processes import run_in_processes
from tests.parity.target_tables import RandomTargets
from tests.parity.toy import WIDTH, ToyEncoder, toy_batches
from tests.parity.word_batches import WORDS, word_batches
from tests.support import make
from tests.support.building import run_local
from tests.support.graded_data import regression_values, write_graded
from tests.support.mask_tokens import maskable_encoder
from tests.support.tiny_data import tiny_plan
from tests.support.tiny_encoders import tiny_encoder

pytestmark = pytest.mark.parity

Outcome = tuple[list[float], Tensor, dict[str, Tensor]]


def train_encoder(rank: int, world_size: int, folder: str, kinds: tuple[str | int, ...]) -> dict[str | int, Outcome]:
    """(losses, embeddings half-way, weights) of 10 steps of Eq. 2, lower layers at lower rates, by engine."""
    outcomes = {}
    for kind in kinds:
        encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
        optimization = Optimization(num_steps=10, lr=1e-3, warmup_fraction=0.1, layer_decay=0.7)
        engine: Engine = (
            TorchEngine(encoder, optimization) if kind == "torch" else DeepSpeedEngine(encoder, optimization, zero_stage=int(kind))
        )
        steps = train_steps(engine, make.entropy(phi=0.04), word_batches(encoder, 10, rank=rank, world_size=world_size))
        reports = list(itertools.islice(steps, 5))
        encoder.eval()
        half_way = SharedSentences(WORDS, encoder.tokenize, tokens_per_batch=16).embedded(engine.encode)
        encoder.train()
        reports += steps
        assert max(report.lr for report in reports) == 1e-3, f"{kind} reports the rate of a lower layer"
        outcomes[kind] = ([report.loss for report in reports], torch.from_numpy(half_way), engine.weights())
    return outcomes


@pytest.mark.parametrize(
    ("family", "kinds"),
    [("bert", ("torch", 0, 3)), ("t5", ("torch", 3)), pytest.param("deberta-v2", ("torch", 3), marks=pytest.mark.nightly)],
)
def test_equal_after_10_steps(family: str, kinds: tuple[str | int, ...], tmp_path: Path) -> None:
    folder = str(tiny_encoder(tmp_path, family))
    losses, half_way, weights = train_encoder(0, 1, folder, ("torch",))["torch"]
    for kind, (found_losses, found_half_way, found_weights) in run_in_processes(train_encoder, 2, folder, kinds)[0].items():
        assert found_losses == pytest.approx(losses, rel=1e-5), kind
        torch.testing.assert_close(found_half_way, half_way, atol=1e-4, rtol=0)
        assert found_weights.keys() == weights.keys()
        for name, weight in weights.items():
            if has_no_gradient(name):
                continue
            # AdamW divides a gradient by its own size: one that is small enough to be known to two digits only moves its parameter by up to
            # 1e-2 of 1e-3 a step differently. Most agree to 1e-6.
            difference = (found_weights[name] - weight).abs().max()
            assert difference < 1e-4, (kind, name, difference)


def trained_by_parts(rank: int, world_size: int, folder: str) -> tuple[Outcome, int]:
    """As `train_encoder` by ZeRO 3, where every parameter is shared out and none is kept between two uses; and how many were away between
    a forward and a backward pass."""
    made, away = deepspeed_engine._config, 0

    def config(*given: Any, **named: Any) -> dict[str, Any]:
        values = made(*given, **named)
        values["zero_optimization"] |= {"stage3_param_persistence_threshold": 0}  # a tiny encoder's are all kept otherwise
        return values

    class Watched(DeepSpeedEngine):
        def encode(self, tokens: TokenBatch) -> Tensor:
            nonlocal away
            embeddings = super().encode(tokens)
            away = max(away, sum(parameter.numel() == 0 for parameter in self.learner.parameters()))
            return embeddings

    with (
        patch.object(deepspeed_engine, "_config", config),
        patch.object(deepspeed_engine, "MOST_LIVE", 0),
        patch.object(deepspeed_engine, "BUCKET_NUMBERS", 64),
        patch(f"{__name__}.DeepSpeedEngine", Watched),
    ):
        return train_encoder(rank, world_size, folder, (3,))[3], away


@pytest.mark.parametrize("family", ["bert", pytest.param("t5", marks=pytest.mark.nightly)])
def test_zero_3_lets_parameters_go_between_their_uses(family: str, tmp_path: Path) -> None:
    folder = str(tiny_encoder(tmp_path, family))
    losses, half_way, _ = train_encoder(0, 1, folder, ("torch",))["torch"]
    for (found_losses, found_half_way, _), away in run_in_processes(trained_by_parts, 2, folder):
        assert away > 10
        assert found_losses == pytest.approx(losses, rel=1e-5)
        torch.testing.assert_close(found_half_way, half_way, atol=1e-4, rtol=0)


def has_no_gradient(name: str) -> bool:
    """A key's bias adds the same to all of a query's logits, so its gradient is zero but for rounding,
    which AdamW blows up to full steps."""
    return name.endswith(("key.bias", "key_proj.bias", "attn.k.bias"))


STEPS = 4


TARGETS = RandomTargets(1000, num_tags=5, num_words=20)


WEIGHTS = AuxiliaryWeights(pos=0.1, bow=0.03, adversary_pos=0.01, adversary_bow=0.0003)


OutcomeOfHeads = tuple[list[float], dict[str, Tensor], list[Tensor]]


def hide_every_third(token_ids_T: Tensor, *, vocabulary: Vocabulary, fraction: float) -> tuple[Tensor, Tensor]:
    """Masks that depend on the tokens alone, so that ranks which hold other sentences hide the same words."""
    chosen_T = (token_ids_T % 3 == 0) & ~torch.isin(token_ids_T, torch.tensor(vocabulary.special_ids))
    return torch.where(chosen_T, vocabulary.mask_id, token_ids_T), chosen_T


def train_heads(
    rank: int, world_size: int, folder: str, kinds: tuple[str | int, ...], micro_batch: int | None, precision: str = "fp32"
) -> dict[str | int, OutcomeOfHeads]:
    """(losses, weights of encoder and heads, those of the adversaries) after a few steps, by engine."""
    outcomes = {}
    for kind in kinds:
        torch.manual_seed(0)
        encoder = SentenceEncoder.load(folder, pooling="cls", hidden_dropout=0.0, attention_dropout=0.0)
        channels = Channels.of(encoder.width)
        adversaries = Adversaries(channels=channels, targets=TARGETS, dropout=0.0)
        auxiliary = AuxiliaryLoss(channels=channels, targets=TARGETS, weights=WEIGHTS, adversaries=adversaries, learning_rate=1e-2)
        masked_lm = make.masked_lm(encoder, micro_batch=micro_batch, hide=hide_every_third)
        terms = [(1.0, Projected(make.info_nce(temperature=0.05), width=encoder.width)), (1.0, auxiliary), (0.5, masked_lm)]
        learner = Learner(encoder, WeightedSum(terms))
        objective = learner.heads
        optimization = Optimization(num_steps=STEPS, lr=1e-3, precision=precision)
        engine: Engine = (
            TorchEngine(learner, optimization) if kind == "torch" else DeepSpeedEngine(learner, optimization, zero_stage=int(kind))
        )
        batches: list[Batch] = list(word_batches(encoder, STEPS, rank=rank, world_size=world_size))
        reports = list(train_steps(engine, objective, batches, micro_batch=micro_batch))
        outcomes[kind] = ([report.loss for report in reports], engine.weights(), [part.detach() for part in adversaries.parameters()])
    return outcomes


@pytest.mark.parametrize(("micro_batch", "kinds"), [(None, (0, 3)), (3, ("torch", 3))], ids=["whole", "micro-batches"])
def test_equal_after_some_steps(micro_batch: int | None, kinds: tuple[str | int, ...], tmp_path: Path) -> None:
    folder = str(maskable_encoder(tmp_path))
    losses, weights, opposing = train_heads(0, 1, folder, ("torch",), None)["torch"]
    found = run_in_processes(train_heads, 2, folder, kinds, micro_batch)[0]
    for kind, (found_losses, found_weights, found_opposing) in found.items():
        assert found_losses == pytest.approx(losses, rel=1e-4), kind  # float32; AdamW lets rounding through, see test_engines_of_encoders
        assert found_weights.keys() == weights.keys()
        for name, weight in weights.items():
            if not name.endswith("key.bias"):  # whose gradient is zero but for rounding
                assert (found_weights[name] - weight).abs().max() < 2e-4, (kind, name)
        for found_part, part in zip(found_opposing, opposing, strict=True):
            assert (found_part - part).abs().max() < 2e-4, kind
        assert "heads.terms.2.head.decoder.weight" not in found_weights, kind  # the encoder's matrix, which is compared above


NUM_STEPS = 12


# The head's gradient has norms of 10 to 40: clipping takes part, and so do weight decay and warm-up.
OPTIMIZATION = Optimization(num_steps=NUM_STEPS, lr=1e-2, warmup_fraction=0.2, weight_decay=0.1, clip_norm=15.0)


ENGINES: tuple[str | int, ...] = ("torch", 0, 3)


OutcomeOfFrozen = tuple[list[float], list[float], dict[str, Tensor]]


def learner(*, dropout: float = 0.0, freeze_encoder: bool = True) -> Learner:
    torch.manual_seed(5)
    objective = make.regression(width=WIDTH, label_range=(0.0, 5.0), loss="smooth_k2", slope=2.0, threshold=0.25)
    return Learner(ToyEncoder(dropout=dropout), objective, freeze_encoder=freeze_encoder)


def engine_of(kind: str | int, one: Learner, optimization: Optimization = OPTIMIZATION) -> Engine:
    return TorchEngine(one, optimization) if kind == "torch" else DeepSpeedEngine(one, optimization, zero_stage=int(kind))


def train_frozen(
    rank: int, world_size: int, kinds: tuple[str | int, ...], micro_batch: int | None = None
) -> dict[str | int, OutcomeOfFrozen]:
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
    losses, norms, weights = train_frozen(0, 1, ("torch",))["torch"]
    assert min(norms) < 15.0 < max(norms), "clipping should take part in some steps, not in all"
    before = learner().state_dict()
    for kind, found in run_in_processes(train_frozen, world_size, kinds, micro_batch)[0].items():
        assert found[0] == pytest.approx(losses, rel=1e-5), kind
        assert found[1] == pytest.approx(norms, rel=1e-4), kind
        assert found[2].keys() == weights.keys() == before.keys()
        for name, weight in encoder_weights(found[2]).items():
            assert torch.equal(weight, before[f"encoder.{name}"]), (kind, name)
        for name, weight in head_weights(found[2]).items():
            torch.testing.assert_close(weight, weights[f"heads.{name}"], atol=2e-6, rtol=0)  # as in test_engines.py
            assert (weight - before[f"heads.{name}"]).abs().max() > 1e-2, (kind, name)


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
