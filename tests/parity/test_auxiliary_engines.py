"""Classifiers, adversaries and the masked-language-modelling head move equally under every engine, ZeRO stage and number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.gather import local_rows
from sentdist.learning.loop import train_steps
from sentdist.learning.objective import Projected, WeightedSum
from sentdist.learning.optimization import Learner, Optimization
from sentdist.objectives.channels import Channels
from sentdist.objectives.learned.auxiliary import Adversaries, AuxiliaryLoss, AuxiliaryWeights
from sentdist.objectives.learned.mlm import Vocabulary
from tests.parity.processes import run_in_processes
from tests.parity.target_tables import RandomTargets
from tests.parity.word_batches import word_batches
from tests.support import make
from tests.support.mask_tokens import maskable_encoder

pytestmark = pytest.mark.parity

STEPS = 4
WIDTH, ROWS = 12, 5  # of the adversaries' own test
TARGETS = RandomTargets(1000, num_tags=5, num_words=20)
WEIGHTS = AuxiliaryWeights(pos=0.1, bow=0.03, adversary_pos=0.01, adversary_bow=0.0003)

Outcome = tuple[list[float], dict[str, Tensor], list[Tensor]]


def hide_every_third(token_ids_T: Tensor, *, vocabulary: Vocabulary, fraction: float) -> tuple[Tensor, Tensor]:
    """Masks that depend on the tokens alone, so that ranks which hold other sentences hide the same words."""
    chosen_T = (token_ids_T % 3 == 0) & ~torch.isin(token_ids_T, torch.tensor(vocabulary.special_ids))
    return torch.where(chosen_T, vocabulary.mask_id, token_ids_T), chosen_T


def train(
    rank: int, world_size: int, folder: str, kinds: tuple[str | int, ...], micro_batch: int | None, precision: str = "fp32"
) -> dict[str | int, Outcome]:
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


@pytest.mark.parametrize(("micro_batch", "kinds"), [(None, (0, 1, 2, 3)), (3, ("torch", 3))], ids=["whole", "micro-batches"])
def test_equal_after_some_steps(micro_batch: int | None, kinds: tuple[str | int, ...], tmp_path: Path) -> None:
    folder = str(maskable_encoder(tmp_path))
    losses, weights, opposing = train(0, 1, folder, ("torch",), None)["torch"]
    found = run_in_processes(train, 2, folder, kinds, micro_batch)[0]
    for kind, (found_losses, found_weights, found_opposing) in found.items():
        assert found_losses == pytest.approx(losses, rel=1e-4), kind  # float32; AdamW lets rounding through, see test_engines_of_encoders
        assert found_weights.keys() == weights.keys()
        for name, weight in weights.items():
            if not name.endswith("key.bias"):  # whose gradient is zero but for rounding
                assert (found_weights[name] - weight).abs().max() < 2e-4, (kind, name)
        for found_part, part in zip(found_opposing, opposing, strict=True):
            assert (found_part - part).abs().max() < 2e-4, kind
        assert "heads.terms.2.head.decoder.weight" not in found_weights, kind  # the encoder's matrix, which is compared above


@pytest.mark.parametrize("micro_batch", [pytest.param(None, marks=pytest.mark.nightly), 3], ids=["whole", "micro-batches"])
def test_bf16_is_autocast_over_float32_weights(micro_batch: int | None, tmp_path: Path) -> None:
    folder = str(maskable_encoder(tmp_path))
    exact, _, _ = train(0, 1, folder, ("torch",), None)["torch"]
    found = run_in_processes(train, 2, folder, ("torch", 0, 3), micro_batch, "bf16")[0]
    for kind, (losses, weights, opposing) in found.items():
        assert {part.dtype for part in (*weights.values(), *opposing)} == {torch.float32}, kind
        assert losses == pytest.approx(found["torch"][0], rel=2e-3), kind  # the same roundings, gradients summed in another order
        assert losses == pytest.approx(exact, rel=1e-2) and losses != exact, kind  # bfloat16 knows embeddings to 0.4 %


def adversaries_after_steps(rank: int, world_size: int) -> list[Tensor]:
    """What adversaries have learned from four batches of five rows."""
    torch.manual_seed(0)
    channels = Channels.of(WIDTH)
    adversaries = Adversaries(channels=channels, targets=TARGETS, learning_rate=1e-2, dropout=0.0)
    rows = local_rows(ROWS, rank=rank, world_size=world_size)
    random = torch.Generator().manual_seed(1)
    for ids_CM in torch.randperm(1000, generator=random)[: 8 * ROWS].view(4, 2, ROWS).numpy():
        embeddings_CMD = torch.randn(2, ROWS, WIDTH, generator=random)
        tokens = collate([[1]] * (2 * len(rows)))
        batch = Batch(tokens=tokens, num_columns=2, first_row=rows.start, sentence_ids=ids_CM)
        adversaries.step(embeddings_CMD[:, rows.start : rows.stop].flatten(0, 1), batch)
    return [parameter.detach() for parameter in adversaries.parameters()]


def test_adversaries_learn_alike_where_one_rank_has_a_row_more() -> None:
    """Three rows and two: each row counts as much as any other."""
    alone = adversaries_after_steps(0, 1)
    for found in run_in_processes(adversaries_after_steps, 2):
        for ours, expected in zip(found, alone, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)  # float32 sums in another order, four steps of Adam at 1e-2


def masked_lm_by_engine(rank: int, world_size: int, folder: str) -> dict[str, tuple[list[float], dict[str, Tensor]]]:
    """Losses and weights of masked language modelling on its own, whose embeddings nobody reads."""
    outcomes = {}
    for kind in ("torch", "0", "3"):
        torch.manual_seed(0)
        encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
        objective = make.masked_lm(encoder, hide=hide_every_third)
        learner, optimization = Learner(encoder, objective), Optimization(num_steps=STEPS, lr=1e-3)
        engine: Engine = (
            TorchEngine(learner, optimization) if kind == "torch" else DeepSpeedEngine(learner, optimization, zero_stage=int(kind))
        )
        reports = list(train_steps(engine, objective, word_batches(encoder, STEPS, rank=rank, world_size=world_size)))
        outcomes[kind] = [report.loss for report in reports], engine.weights()
    return outcomes


def test_masked_language_modelling_alone_is_one_on_all_engines(tmp_path: Path) -> None:
    folder = str(maskable_encoder(tmp_path))
    by_engine = run_in_processes(masked_lm_by_engine, 2, folder)[0]
    losses, weights = by_engine["torch"]
    for kind in ("0", "3"):
        assert by_engine[kind][0] == pytest.approx(losses, rel=1e-4)
        for name, weight in weights.items():
            if not name.endswith("key.bias"):  # as above
                assert (by_engine[kind][1][name] - weight).abs().max() < 2e-4, (kind, name)
