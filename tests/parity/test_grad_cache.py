"""Micro-batches whose activations are recomputed, and losses in blocks of anchors, give the value and gradient of one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sentdist.learning import grad_cache
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch, collate
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.grad_cache import TOKENS_MULTIPLE, encode_in_micro_batches, micro_batches, sum_over_micro_batches
from sentdist.learning.optimization import Optimization
from tests.parity.ranks import FLOAT64, M, made, toy_batch, toy_embeddings
from tests.parity.word_batches import WORDS

pytestmark = pytest.mark.parity


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


def test_sentences_are_dealt_forth_and_back() -> None:
    assert micro_batches([2, 9, 8, 3, 7, 6, 5, 4], size=4) == [[1, 5, 6, 0], [2, 4, 7, 3]], "22 tokens each"
    assert micro_batches([1, 3, 2], size=1, most=5) == [[1], [2], [0], [], []], "as many as the rank with the most sentences has"


def test_filling_changes_no_embedding_and_no_gradient(tiny_encoder_dir: str) -> None:
    multiple = 64
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


@pytest.mark.parametrize(
    "values",
    [
        {"name": "info_nce"},
        {"name": "entropy", "phi": 0.3},
        {"name": "rcl"},
        {"name": "supmpn"},
        {"name": "symmetric_info_nce"},
        {"name": "rse", "phi": 0.3},
    ],
    ids=lambda values: values["name"],
)
def test_each_anchor_of_a_block_has_its_own_positive(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose logits are too many to be held at once has the loss and the gradient of one whose logits are not."""
    batch = replace(toy_batch(3), augmented=toy_embeddings(4, seed=6).unflatten(0, (2, 2)))
    embeddings = toy_embeddings(3).flatten(0, 1).requires_grad_()
    objective = made(values)
    learned = [embeddings, *(objective.parameters() if isinstance(objective, torch.nn.Module) else ())]
    whole = objective(embeddings, batch)
    expected = torch.autograd.grad(whole, learned)
    monkeypatch.setattr(grad_cache, "LOGITS_AT_ONCE", 6 * M)  # RSE: blocks of three, where two relations take turns
    blocks = objective(embeddings, batch)
    assert blocks.item() == pytest.approx(whole.item(), rel=1e-12)
    for one, other in zip(torch.autograd.grad(blocks, learned), expected, strict=True):
        torch.testing.assert_close(one, other, **FLOAT64)
