"""Real encoders, auxiliary tasks and masked language modelling move equally under every engine, ZeRO stage and number of ranks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from sentdist.execution.training import deepspeed_engine
from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.encoder.batch import Batch, TokenBatch
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.learner import Learner
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Optimization
from sentdist.learning.projected import Projected
from sentdist.learning.shared_sentences import SharedSentences
from sentdist.learning.weighted_sum import WeightedSum
from sentdist.objectives.channels import Channels
from sentdist.objectives.learned.adversaries import Adversaries
from sentdist.objectives.learned.auxiliary import AuxiliaryLoss, AuxiliaryWeights
from sentdist.objectives.learned.mlm import Vocabulary
from tests.parity.processes import run_in_processes
from tests.parity.target_tables import RandomTargets
from tests.parity.word_batches import WORDS, word_batches
from tests.support import make
from tests.support.mask_tokens import maskable_encoder
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
    [
        ("bert", ("torch", 0, 3)),
        ("t5", ("torch", 3)),
        pytest.param("deberta-v2", ("torch", 3), marks=pytest.mark.nightly),
    ],
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


WIDTH, ROWS = 12, 5  # of the adversaries' own test


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
