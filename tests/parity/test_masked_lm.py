"""Masked language modelling equals transformers' own on the same hidden tokens, value and gradient, whole or in micro-batches,
on one rank or two."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM

from sentdist.families import FLAT_FAMILIES
from sentdist.learning.encoder.pretrained import auto_class
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, TokenBatch, collate
from sentdist.learning.gather import by_share, local_rows
from sentdist.learning.grad_cache import micro_batches
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.objectives.learned.mlm import MaskedLMLoss, Vocabulary, masked, part_of_mean
from tests.parity.processes import run_in_processes
from tests.support import make
from tests.support.mask_tokens import maskable_encoder
from tests.support.tiny_encoders import SENTENCES

pytestmark = pytest.mark.parity

STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
FLOAT32 = {"rtol": 2e-4, "atol": 2e-6}  # two layers and a softmax over 50 words, summed in another order


@pytest.fixture(scope="module", params=["bert", "roberta", "mpnet", "deberta-v2"], ids=["flat", "flat-offset", "flat-own-code", "padded"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maskable_encoder(tmp_path_factory.mktemp(request.param), request.param, **STILL)


def hidden(encoder: SentenceEncoder) -> tuple[TokenBatch, TokenBatch, Tensor]:
    """The sentences as they are, as the encoder sees them, and which tokens are hidden."""
    tokens = encoder.tokenize(SENTENCES)
    torch.manual_seed(3)
    seen_T, chosen_T = masked(tokens.token_ids, vocabulary=Vocabulary.of(encoder), fraction=0.4)
    assert chosen_T.sum() > 5
    return tokens, collate([ids.numpy() for ids in seen_T.split(list(tokens.lengths))]), chosen_T


def transformers_loss(objective: MaskedLMLoss, encoder: SentenceEncoder, folder: Path) -> tuple[Tensor, Tensor]:
    """Mean loss of AutoModelForMaskedLM with our weights, padded, and its gradient of the word embeddings."""
    theirs = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    weights = dict(theirs.named_parameters())
    parts = {"bert": ("cls.predictions.transform.", "cls.predictions.", "dense.", "LayerNorm."),
             "roberta": ("lm_head.", "lm_head.", "dense.", "layer_norm."),
             "mpnet": ("lm_head.", "lm_head.", "dense.", "layer_norm."),
             "deberta-v2": ("cls.predictions.transform.", "cls.predictions.", "dense.", "LayerNorm.")}  # fmt: skip
    transform, predictions, dense, norm = parts[encoder.model.config.model_type]
    head = objective.head
    with torch.no_grad():
        for name, ours in (
            (transform + dense + "weight", head.dense.weight),
            (transform + dense + "bias", head.dense.bias),
            (transform + norm + "weight", head.norm.weight),
            (transform + norm + "bias", head.norm.bias),
            (predictions + "bias", head.decoder.bias),
        ):
            weights[name].copy_(ours)
    tokens, seen, chosen_T = hidden(encoder)
    sizes = list(tokens.lengths)
    pad = encoder.tokenizer.pad_token_id
    ids = torch.nn.utils.rnn.pad_sequence(seen.token_ids.split(sizes), batch_first=True, padding_value=pad)
    labels = torch.nn.utils.rnn.pad_sequence(tokens.token_ids.where(chosen_T, -100).split(sizes), batch_first=True, padding_value=-100)
    is_token = torch.nn.utils.rnn.pad_sequence([torch.ones(size) for size in sizes], batch_first=True)
    loss = theirs(input_ids=ids, attention_mask=is_token, labels=labels).loss
    (gradient,) = torch.autograd.grad(loss, theirs.get_input_embeddings().weight)
    return loss, gradient


def test_loss_and_gradient_of_the_tied_embeddings_equal_transformers(folder: Path) -> None:
    torch.manual_seed(0)
    encoder = SentenceEncoder.load(folder).train()
    objective = make.masked_lm(encoder)
    torch.nn.init.normal_(objective.head.decoder.bias)
    torch.nn.init.normal_(objective.head.norm.bias)
    expected, expected_gradient = transformers_loss(objective, encoder, folder)
    tokens, seen, chosen_T = hidden(encoder)
    found = objective.loss_of(seen, chosen_T, tokens.token_ids) / chosen_T.sum()
    torch.testing.assert_close(found, expected, **FLOAT32)
    (gradient,) = torch.autograd.grad(found, encoder.model.get_input_embeddings().weight)
    torch.testing.assert_close(gradient, expected_gradient, **FLOAT32)


@pytest.mark.in_turns
@pytest.mark.parametrize("family", sorted(FLAT_FAMILIES))
def test_every_flat_family_guesses_from_the_states_of_a_padded_model(family: str, tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(maskable_encoder(tmp_path, family)).eval()
    torch.manual_seed(0)
    objective = make.masked_lm(encoder)
    tokens, seen, chosen_T = hidden(encoder)
    found = objective.loss_of(seen, chosen_T, tokens.token_ids)
    lengths, padding = list(tokens.lengths), encoder.tokenizer.pad_token_id
    ids_ST = torch.nn.utils.rnn.pad_sequence(seen.token_ids.split(lengths), batch_first=True, padding_value=padding)
    is_token_ST = torch.nn.utils.rnn.pad_sequence([torch.ones(size) for size in lengths], batch_first=True)
    model = auto_class(encoder.model.config).from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    states_TD = model(input_ids=ids_ST, attention_mask=is_token_ST).last_hidden_state[is_token_ST.bool()]
    expected = torch.nn.functional.cross_entropy(objective.head(states_TD[chosen_T]), tokens.token_ids[chosen_T], reduction="sum")
    torch.testing.assert_close(found, expected, **FLOAT32)


def test_the_head_has_the_encoders_own_activation_epsilon_and_start(tmp_path: Path) -> None:
    own = {"hidden_act": "relu", "layer_norm_eps": 0.1, "initializer_range": 0.5}
    folder = maskable_encoder(tmp_path, **own, **STILL)
    torch.manual_seed(0)
    encoder = SentenceEncoder.load(folder).train()
    objective = make.masked_lm(encoder)
    assert float(objective.head.dense.weight.detach().std()) == pytest.approx(0.5, rel=0.1)  # 1024 draws: the error of a std is 2 %
    tokens, seen, chosen_T = hidden(encoder)
    found = objective.loss_of(seen, chosen_T, tokens.token_ids) / chosen_T.sum()
    torch.testing.assert_close(found, transformers_loss(objective, encoder, folder)[0], **FLOAT32)


def batch_of(encoder: SentenceEncoder, rows: range, sentences: tuple[str, ...] = SENTENCES) -> Batch:
    tokens = encoder.tokenize(sentences[rows.start : rows.stop])
    return Batch(tokens=tokens, num_columns=1, first_row=rows.start, sentence_ids=np.arange(len(sentences))[None])


def test_recomputed_micro_batches_draw_the_same_masks(folder: Path) -> None:
    """Against the same micro-batches with their activations kept, dropout on."""
    encoder = SentenceEncoder.load(folder, attention_dropout=0.1, hidden_dropout=0.1).train()
    objective = make.masked_lm(encoder, fraction=0.4, micro_batch=3)
    batch = batch_of(encoder, range(len(SENTENCES)))
    words = encoder.model.get_input_embeddings().weight
    results = []
    for recomputed in (True, False):
        torch.manual_seed(7)
        encoder.zero_grad()
        if recomputed:
            loss = objective(torch.empty(0), batch)
        else:
            parts = [objective._sum_and_count(batch.tokens.take(rows)) for rows in micro_batches(batch.tokens.lengths, size=3)]
            sums = torch.stack(parts).sum(dim=0)
            loss = part_of_mean(sums[0], sums[1], shares=1.0)
        loss.backward()
        results.append((loss.detach(), words.grad.clone()))
    torch.testing.assert_close(*(loss for loss, _ in results), rtol=0, atol=0)
    torch.testing.assert_close(*(gradient for _, gradient in results), rtol=1e-6, atol=1e-8)  # summed in another order


def share_of_rank(rank: int, world_size: int, folder: str) -> tuple[float, Tensor]:
    """The loss of fixed masks on this rank's sentences, and the averaged gradient."""
    encoder = SentenceEncoder.load(folder).train()
    torch.manual_seed(0)
    tokens = encoder.tokenize(SENTENCES)
    rows = local_rows(len(SENTENCES), rank=rank, world_size=world_size)
    mine = slice(sum(tokens.lengths[: rows.start]), sum(tokens.lengths[: rows.stop]))
    hidden_T = masked(tokens.token_ids, vocabulary=Vocabulary.of(encoder), fraction=0.4)
    objective = make.masked_lm(encoder, hide=lambda *_, **__: tuple(part_T[mine] for part_T in hidden_T))
    loss = by_share(objective(torch.empty(0), batch_of(encoder, rows)), len(rows), of=len(SENTENCES))
    loss.backward()
    average_gradients(encoder.parameters())
    return loss.item(), encoder.model.get_input_embeddings().weight.grad


@pytest.mark.parametrize("world_size", [2, 3])
def test_mean_over_hidden_tokens_does_not_depend_on_the_number_of_ranks(folder: Path, world_size: int) -> None:
    if folder.name.startswith(("mpnet", "deberta")):
        pytest.skip("these forms differ in the encoder only")
    loss, gradient = share_of_rank(0, 1, str(folder))
    ranks = run_in_processes(share_of_rank, world_size, str(folder))
    assert math.isclose(sum(rank[0] for rank in ranks) / world_size, loss, rel_tol=1e-5)
    for _, found in ranks:
        torch.testing.assert_close(found, gradient, **FLOAT32)
