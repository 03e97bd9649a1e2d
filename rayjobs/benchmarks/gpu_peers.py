"""sentence-transformers on a GPU: its model, loss and tokenizing, with the attention that is asked for.

Its trainer is left out: a plain loop does the same steps with less around them, and needs fewer packages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import torch

from rayjobs.benchmarks.interleaved import Sample
from rayjobs.benchmarks.peers import Work, encoding_sentences
from sentdist.learning.precision import apply_matmul_precision


def peer_training(work: Work, *, attention: str) -> Iterator[Sample]:
    """One optimizer step a draw: MultipleNegativesRankingLoss, fused AdamW, gradients clipped; in bf16 by autocast over float32 weights."""
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = _model(work, attention, torch.float32).train()
    loss_of = MultipleNegativesRankingLoss(model, scale=1.0 / work.temperature)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    columns = [work.triplets.column(name).to_pylist() for name in ("anchor", "positive", "negative")]
    for step in count():
        started = time.perf_counter()
        rows = [(step * work.batch_size + number) % len(columns[0]) for number in range(work.batch_size)]
        read = [model.preprocess([column[row] for row in rows]) for column in columns]
        features = [{name: _there(value, work.device) for name, value in one.items()} for one in read]
        with torch.autocast(torch.device(work.device).type, dtype=torch.bfloat16, enabled=work.precision == "bf16"):
            loss = loss_of(features, None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield {"seconds": time.perf_counter() - started}


def peer_encoding(work: Work, *, attention: str) -> Iterator[Sample]:
    """The sentences encoded once a draw, `batch_size` at a time; in bf16 its weights are bfloat16."""
    model = _model(work, attention, torch.bfloat16 if work.precision == "bf16" else torch.float32)
    sentences = encoding_sentences(work)
    while True:
        started = time.perf_counter()
        model.encode(sentences, batch_size=work.batch_size, show_progress_bar=False)
        yield {"seconds": time.perf_counter() - started}


def _model(work: Work, attention: str, weights: torch.dtype) -> Any:
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(work.threads)
    apply_matmul_precision(torch.device(work.device), work.precision)
    model = SentenceTransformer(work.encoder, device=work.device, model_kwargs={"attn_implementation": attention, "dtype": weights})
    model.max_seq_length = work.max_length
    return model


def _there(value: object, device: str) -> object:
    return value.to(device) if isinstance(value, torch.Tensor) else value
