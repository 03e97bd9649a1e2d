"""A real encoder, without padding, moves equally under every engine, ZeRO stage and number of ranks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sentdist.execution.training import deepspeed_engine
from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch, collate
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.gather import SharedSentences
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Optimization
from tests.parity.processes import run_in_processes
from tests.parity.word_batches import WORDS, word_batches
from tests.support import make
from tests.support.tiny_encoders import tiny_encoder

pytestmark = pytest.mark.parity

ALIKE = ("roberta", "mpnet", "nomic_bert")  # to an engine they are as BERT is

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
        ("bert", ("torch", 0, 1, 2, 3)),
        *((family, ("torch", 3)) for family in ("deberta-v2", "t5")),
        *(pytest.param(family, ("torch", 3), marks=pytest.mark.nightly) for family in ALIKE),
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


@pytest.mark.parametrize("family", ["bert", "deberta-v2", *(pytest.param(family, marks=pytest.mark.nightly) for family in ("t5", *ALIKE))])
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


def unlike_ranks(rank: int, world_size: int, folder: str, kind: str | int) -> tuple[list[float], int]:
    """Losses of three steps in which sentences are of one length on the first rank and of many on the others; numbers of the largest tensor
    that was made meanwhile."""
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
    optimization, largest = Optimization(num_steps=3, lr=1e-3), Largest()
    with largest:
        engine: Engine = (
            TorchEngine(encoder, optimization) if kind == "torch" else DeepSpeedEngine(encoder, optimization, zero_stage=int(kind))
        )
        batches = [
            replace(batch, tokens=collate([[5] * (4 + rank * (place % 25)) for place in range(batch.tokens.num_sentences)]))
            for batch in word_batches(encoder, 3, rank=rank, world_size=world_size, num_rows=16)
        ]
        losses = [report.loss for report in train_steps(engine, make.entropy(phi=0.04), batches)]
    return losses, largest.numbers


class Largest(TorchDispatchMode):
    """Numbers of the largest tensor that was made in this context."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        self.numbers = max(self.numbers, made.numel() if isinstance(made, Tensor) else 0)
        return made


@pytest.mark.parametrize("kind", [3, 1])
def test_ranks_with_unlike_sentences_pass_equally_often_and_no_buffer_is_larger_than_the_model(kind: int, tiny_padded_dir: Path) -> None:
    """A model that runs padded passed once for each group of lengths, and ZeRO stage 3 gathered the parameters of one rank's alone."""
    expected, _ = run_in_processes(unlike_ranks, 2, str(tiny_padded_dir), "torch")[0]
    encoder = SentenceEncoder.load(tiny_padded_dir)
    assert not encoder.is_flat
    losses, largest = run_in_processes(unlike_ranks, 2, str(tiny_padded_dir), kind)[0]
    assert losses == pytest.approx(expected, rel=1e-5)
    # On a GPU DeepSpeed's default takes 2 GB of any model, in float32.
    assert largest <= 2 * sum(parameter.numel() for parameter in encoder.parameters())
