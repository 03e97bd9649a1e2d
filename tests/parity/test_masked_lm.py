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

from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, TokenBatch, collate
from sentdist.learning.gather import by_share, local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.objectives.learned.mlm import MaskedLMLoss, Vocabulary, masked
from tests.parity.processes import run_in_processes
from tests.support import make
from tests.support.mask_tokens import maskable_encoder
from tests.support.tiny_encoders import SENTENCES

pytestmark = pytest.mark.parity

STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
FLOAT32 = {"rtol": 2e-4, "atol": 2e-6}  # two layers and a softmax over 50 words, summed in another order


@pytest.fixture(scope="module", params=["bert", "deberta-v2"], ids=["flat", "padded"])
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


def batch_of(encoder: SentenceEncoder, rows: range, sentences: tuple[str, ...] = SENTENCES) -> Batch:
    tokens = encoder.tokenize(sentences[rows.start : rows.stop])
    return Batch(tokens=tokens, num_columns=1, first_row=rows.start, sentence_ids=np.arange(len(sentences))[None])


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


def test_mean_over_hidden_tokens_does_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    folder, world_size = maskable_encoder(tmp_path, **STILL), 2
    loss, gradient = share_of_rank(0, 1, str(folder))
    ranks = run_in_processes(share_of_rank, world_size, str(folder))
    assert math.isclose(sum(rank[0] for rank in ranks) / world_size, loss, rel_tol=1e-5)
    for _, found in ranks:
        torch.testing.assert_close(found, gradient, **FLOAT32)
