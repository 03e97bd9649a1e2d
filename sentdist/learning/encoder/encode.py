"""Embedding many sentences quickly: batches of similar length under a token budget, without padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import numpy as np
import torch

from sentdist.errors import ResourceError
from sentdist.learning.encoder.batch import TokenBatch, collate
from sentdist.learning.encoder.packed_linear import packed_linears
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.precision import autocast

_SENTENCES_AT_ONCE = 16_384  # tokenized and sorted together: memory stays bounded, and sorting has nothing to gain beyond that
_SENTENCES_WORTH_PACKING = 256  # packing a model's weights takes the time of encoding ten


def encode(
    encoder: SentenceEncoder,
    sentences: Sequence[str],
    *,
    max_length: int | None = None,
    tokens_per_batch: int = 4096,
    precision: str = "fp32",
    on_progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return the test-time embeddings (S, D) float32 of S sentences, in their order, not normalized.

    tokens_per_batch: budget of a forward; 2k to 4k tokens are fastest on a CPU (more falls out of its cache).
    precision: fp32 (or tf32, which the process decides, see precision.py), or bf16 for bfloat16 products over the float32 weights.
    on_progress: is given the number of sentences done, after each forward.
    """
    if tokens_per_batch < 1:
        raise ResourceError(
            where="encode: tokens_per_batch", found=str(tokens_per_batch), expected="at least 1 token", remedy="2048 to 4096 suit a CPU."
        )
    embeddings_SD, num_done = np.empty((len(sentences), encoder.width), dtype=np.float32), 0
    was_training = encoder.training
    encoder.eval()
    try:
        packed = packed_linears(encoder.model, precision) if len(sentences) >= _SENTENCES_WORTH_PACKING else nullcontext()
        with torch.inference_mode(), autocast(precision, encoder.device), packed:
            for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
                chunk = encoder.tokenize(sentences[start : start + _SENTENCES_AT_ONCE], max_length=max_length)
                for rows, tokens in length_sorted(chunk, tokens_per_batch=tokens_per_batch):
                    embeddings_SD[start + rows] = encoder(tokens).cpu().numpy()
                    num_done += len(rows)
                    if on_progress is not None:
                        on_progress(num_done)
    finally:
        encoder.train(was_training)
    return embeddings_SD


def length_sorted(tokens: TokenBatch, *, tokens_per_batch: int) -> Iterator[tuple[np.ndarray, TokenBatch]]:
    """Cut a TokenBatch into batches of similar length with at most `tokens_per_batch` tokens (one sentence at least),
    with the rows they hold."""
    lengths = np.asarray(tokens.lengths)
    starts = np.cumsum(lengths) - lengths
    token_ids = tokens.token_ids.numpy()
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        filled = np.cumsum(lengths[order[first : first + tokens_per_batch]])
        last = first + max(1, int(np.searchsorted(filled, tokens_per_batch, side="right")))
        rows = order[first:last]
        yield rows, collate([token_ids[starts[row] : starts[row] + lengths[row]] for row in rows])
        first = last
