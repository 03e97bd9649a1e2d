"""Micro-batches whose activations are recomputed, and losses in blocks of anchors, give the value and gradient of one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning import grad_cache as anchor_blocks
from sentdist.learning.encoder import pooling as regularizers
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch, collate
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.grad_cache import TOKENS_MULTIPLE, encode_in_micro_batches, mean_over_blocks, micro_batches, sum_over_micro_batches
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Optimization
from sentdist.objectives.entropy import Entropy
from sentdist.objectives.info_nce import InfoNCE, info_nce
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.objectives.rcl import RCL, Regulators
from sentdist.objectives.rse import RSE
from sentdist.objectives.symmetric_info_nce import SymmetricInfoNCE
from tests.parity.processes import run_in_processes
from tests.parity.ranks import FLOAT64, M, made, toy_batch, toy_embeddings
from tests.parity.word_batches import WORDS, word_batches
from tests.support import make

pytestmark = pytest.mark.parity

Outcome = tuple[list[float], dict[str, Tensor]]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recomputed_micro_batches_equal_kept_ones_with_dropout(tiny_encoder_dir: str, precision: str) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, hidden_dropout=0.3, attention_dropout=0.3)
    engine = TorchEngine(encoder, Optimization(num_steps=1, precision=precision))
    tokens = encoder.tokenize(WORDS * 2)

    def gradients(keep: bool) -> tuple[float, list[Tensor]]:
        torch.manual_seed(7)
        embeddings = kept(engine, tokens) if keep else encode_in_micro_batches(engine.encode, tokens, micro_batch=5)
        loss = embeddings.square().mul(torch.linspace(-1, 1, embeddings.shape[1])).sum()
        encoder.zero_grad()
        loss.backward()
        return loss.item(), [parameter.grad.clone() for parameter in encoder.parameters() if parameter.grad is not None]

    loss, expected = gradients(keep=True)
    found_loss, found = gradients(keep=False)
    assert found_loss == loss
    for one, other in zip(found, expected, strict=True):
        # The same operations on the same numbers; only the order in which micro-batches are added up differs.
        torch.testing.assert_close(one, other, rtol=1e-2 if precision == "bf16" else 1e-4, atol=1e-5 * float(other.abs().max()) + 1e-7)


@pytest.fixture
def own_generator(monkeypatch: pytest.MonkeyPatch) -> torch.Generator:
    """A device's own source of random numbers, as a GPU has one: dropout is drawn from it, not from the host's."""
    generator = torch.Generator()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", generator.get_state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", generator.set_state)

    def keep_mask(shape: torch.Size, p: float, *, device: torch.device) -> Tensor:
        return torch.empty(shape, dtype=torch.bool).bernoulli_(1.0 - p, generator=generator)

    monkeypatch.setattr(regularizers, "keep_mask", keep_mask)
    return generator


def test_recomputed_micro_batches_draw_the_same_from_a_devices_own_generator(tiny_encoder_dir: str, own_generator: torch.Generator) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, hidden_dropout=0.3, attention_dropout=0.3)
    engine = TorchEngine(encoder, Optimization(num_steps=1))
    tokens = encoder.tokenize(WORDS * 2)

    def gradients(encode: Callable[[], Tensor]) -> tuple[Tensor, float]:
        """All gradients, and what the device draws next."""
        torch.manual_seed(7)
        own_generator.manual_seed(7)
        embeddings = encode()
        encoder.zero_grad()
        embeddings.square().mul(torch.linspace(-1, 1, embeddings.shape[1])).sum().backward()
        found = torch.cat([parameter.grad.flatten() for parameter in encoder.parameters() if parameter.grad is not None])
        return found, float(torch.rand((), generator=own_generator))

    def sums(micro_batch: TokenBatch) -> Tensor:
        return torch.cat([engine.encode(micro_batch).sum(dim=0, keepdim=True)])

    expected, drawn_next = gradients(lambda: kept(engine, tokens))
    found, found_next = gradients(lambda: encode_in_micro_batches(engine.encode, tokens, micro_batch=5))
    # Other masks are off by the size of the gradient itself; the same differ in the order of sums only.
    assert float((found - expected).norm() / expected.norm()) < 1e-5
    assert found_next == drawn_next
    dealt = micro_batches(tokens.lengths, size=5)
    expected, drawn_next = gradients(lambda: torch.stack([sums(tokens.take(rows)) for rows in dealt]).sum(dim=0))
    found, found_next = gradients(lambda: sum_over_micro_batches(sums, tokens, micro_batch=5))
    assert float((found - expected).norm() / expected.norm()) < 1e-5
    assert found_next == drawn_next


def test_passes_that_a_rank_makes_for_nothing_add_nothing() -> None:
    """Three sentences, five passes: the first sentence goes through three times and counts once."""
    tokens = collate([[1, 2], [3], [4, 5, 6]])
    factor = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def sums(some: TokenBatch) -> Tensor:
        return torch.stack([factor * some.token_ids.double().sum(), torch.tensor(float(some.num_tokens), dtype=torch.float64)])

    found = sum_over_micro_batches(sums, tokens, micro_batch=1, most=5)
    assert found.tolist() == [42.0, 6.0]
    assert torch.autograd.grad(found[0], factor)[0] == 21.0


def kept(engine: Engine, tokens: TokenBatch) -> Tensor:
    """The micro-batches of five, with all their activations."""
    embeddings: dict[int, Tensor] = {}
    for rows in micro_batches(tokens.lengths, size=5):
        filled = tokens.take(rows).filled(TOKENS_MULTIPLE)
        embeddings |= dict(zip(rows, engine.encode(filled)[: len(rows)], strict=True))
    return torch.stack([embeddings[row] for row in range(tokens.num_sentences)])


@given(lengths=st.lists(st.integers(min_value=1, max_value=128), min_size=1, max_size=200), size=st.integers(min_value=1, max_value=64))
def test_micro_batches_hold_each_sentence_once_and_nearly_equal_numbers_of_tokens(lengths: list[int], size: int) -> None:
    dealt = micro_batches(lengths, size=size)
    assert sorted(chain.from_iterable(dealt)) == list(range(len(lengths)))
    assert len(dealt) == -(-len(lengths) // size) and all(0 < len(rows) <= size for rows in dealt)
    tokens = [sum(lengths[row] for row in rows) for rows in dealt]
    assert max(tokens) - min(tokens) <= 2 * max(lengths)


def test_sentences_are_dealt_forth_and_back() -> None:
    assert micro_batches([2, 9, 8, 3, 7, 6, 5, 4], size=4) == [[1, 5, 6, 0], [2, 4, 7, 3]], "22 tokens each"
    assert micro_batches([1, 3, 2], size=1, most=5) == [[1], [2], [0], [], []], "as many as the rank with the most sentences has"


@pytest.mark.parametrize("multiple", [1, 8, 64, 100])
def test_filling_changes_no_embedding_and_no_gradient(tiny_encoder_dir: str, multiple: int) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, hidden_dropout=0.0, attention_dropout=0.0)
    tokens = encoder.tokenize(WORDS)
    filled = tokens.filled(multiple)
    assert filled.num_tokens == sum(filled.lengths) == int(filled.boundaries[-1]) and filled.num_tokens % multiple == 0
    assert filled.num_tokens - tokens.num_tokens < multiple and filled.longest == tokens.longest

    def gradients(batch: TokenBatch) -> tuple[Tensor, list[Tensor]]:
        encoder.zero_grad()
        embeddings = encoder(batch)[: tokens.num_sentences]
        embeddings.square().mul(torch.linspace(-1, 1, embeddings.shape[1])).sum().backward()
        return embeddings, [parameter.grad.clone() for parameter in encoder.parameters() if parameter.grad is not None]

    expected, found = gradients(tokens), gradients(filled)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()) + 1e-7)


def test_blocks_of_anchors_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    anchors, candidates = (torch.randn(rows, 8, generator=generator, dtype=torch.float64).requires_grad_() for rows in (13, 26))
    held: list[int] = []

    def of_block(first: int, last: int) -> Tensor:
        held.append((last - first) * len(candidates))
        return info_nce(anchors[first:last], candidates, first_row=first, temperature=0.05)

    whole = mean_over_blocks(of_block, num_rows=13, num_columns=26, device=anchors.device)
    expected = torch.autograd.grad(whole, (anchors, candidates))
    monkeypatch.setattr(anchor_blocks, "LOGITS_AT_ONCE", 4 * 26)
    held.clear()
    blocks = mean_over_blocks(of_block, num_rows=13, num_columns=26, device=anchors.device)
    assert blocks.item() == pytest.approx(whole.item(), rel=1e-14) and held == [4 * 26] * 3 + [26]
    for one, other in zip(torch.autograd.grad(blocks, (anchors, candidates)), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def train_encoder(
    rank: int, world_size: int, folder: str, kinds: tuple[str | int, ...], micro_batch: int | None
) -> dict[str | int, Outcome]:
    """(losses, weights) of 10 steps of Eq. 1, by engine."""
    outcomes = {}
    for kind in kinds:
        encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
        optimization = Optimization(num_steps=10, lr=1e-3)
        engine: Engine = (
            TorchEngine(encoder, optimization) if kind == "torch" else DeepSpeedEngine(encoder, optimization, zero_stage=int(kind))
        )
        batches = word_batches(encoder, 10, rank=rank, world_size=world_size)
        reports = list(train_steps(engine, make.info_nce(), batches, micro_batch=micro_batch))
        outcomes[kind] = ([report.loss for report in reports], engine.weights())
    return outcomes


def test_equal_under_every_engine(tiny_encoder_dir: str) -> None:
    losses, weights = train_encoder(0, 1, tiny_encoder_dir, ("torch",), None)["torch"]
    for kind, (found_losses, found) in run_in_processes(train_encoder, 2, tiny_encoder_dir, ("torch", 0, 1, 2, 3), 3)[0].items():
        assert found_losses == pytest.approx(losses, rel=1e-5), kind
        for name, weight in weights.items():
            if not name.endswith("key.bias"):  # its gradient is zero but for rounding, which AdamW blows up to full steps
                # AdamW divides a gradient by its own size: a small one, known to two digits,
                # moves its parameter by 1e-2 of 1e-3 a step differently.
                assert (found[name] - weight).abs().max() < 1e-4, (kind, name)


class WatchedEngine(TorchEngine):
    """Knows how many tokens it was given at once."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__(encoder, Optimization(num_steps=1))
        self.given: list[int] = []

    def encode(self, tokens: TokenBatch) -> Tensor:
        self.given.append(tokens.num_tokens)
        return super().encode(tokens)


def test_a_step_holds_a_micro_batch_at_a_time(tiny_encoder_dir: str) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    batches = word_batches(encoder, 1)
    held = []
    for micro_batch in (None, 3):
        engine = WatchedEngine(encoder)
        list(train_steps(engine, make.info_nce(), batches, micro_batch=micro_batch))
        held.append(max(engine.given))
    assert not any(num_tokens % TOKENS_MULTIPLE for num_tokens in engine.given), "a heap of few sizes stays small"
    assert held[0] == batches[0].tokens.num_tokens > 2 * TOKENS_MULTIPLE >= 2 * held[1]


@pytest.mark.parametrize(
    "values",
    [InfoNCE(), Entropy(phi=0.3), RCL(temperature=0.05), Regulators(), SymmetricInfoNCE(), RSE(), RSE(phi=0.3)],
    ids=lambda values: values.name,
)
def test_each_anchor_of_a_block_has_its_own_positive(values: ObjectiveSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose logits are too many to be held at once has the loss and the gradient of one whose logits are not."""
    batch = replace(toy_batch(3), augmented=toy_embeddings(4, seed=6).unflatten(0, (2, 2)))
    embeddings = toy_embeddings(3).flatten(0, 1).requires_grad_()
    objective = made(values)
    learned = [embeddings, *(objective.parameters() if isinstance(objective, torch.nn.Module) else ())]
    whole = objective(embeddings, batch)
    expected = torch.autograd.grad(whole, learned)
    monkeypatch.setattr(anchor_blocks, "LOGITS_AT_ONCE", 6 * M)  # RSE: blocks of three, where two relations take turns
    blocks = objective(embeddings, batch)
    assert blocks.item() == pytest.approx(whole.item(), rel=1e-12)
    for one, other in zip(torch.autograd.grad(blocks, learned), expected, strict=True):
        torch.testing.assert_close(one, other, **FLOAT64)
