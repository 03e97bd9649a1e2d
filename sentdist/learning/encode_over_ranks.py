"""How the ranks of a training embed one list of sentences together, in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from sentdist.learning.encoder.batch import TokenBatch
from sentdist.learning.gather import gather_rows, rank_and_world_size

CHARACTERS_PER_TOKEN = 4  # of English text, roughly; only the size of a batch depends on it


def encode_over_ranks(
    encode: Callable[[TokenBatch], Tensor],
    tokenize: Callable[[Sequence[str]], TokenBatch],
    sentences: Sequence[str],
    *,
    tokens_per_batch: int,
) -> np.ndarray:
    """(S, D) float32 embeddings, in the order given, on every rank.

    Every rank runs equally many forward passes, as ZeRO stage 3 asks (it gathers parameters in each): sentences are sorted by length and
    distributed round-robin; short ranks are padded with the longest sentence, whose extra embeddings are dropped.
    """
    rank, world_size = rank_and_world_size()
    order = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
    filled = np.concatenate([np.repeat(order[:1], -len(order) % world_size), order])
    hands = filled.reshape(-1, world_size)  # one row: a sentence for each rank
    with torch.no_grad():
        parts = [
            encode(tokenize([sentences[row] for row in hands[first:last, rank]]))
            for first, last in _borders(sentences, hands, tokens_per_batch)
        ]
        gathered = gather_rows(torch.cat(parts).float())  # rank by rank
    by_hand = gathered.cpu().numpy().reshape(world_size, len(hands), -1).transpose(1, 0, 2).reshape(len(filled), -1)
    embeddings = np.empty((len(sentences), by_hand.shape[1]), dtype=np.float32)
    embeddings[filled] = by_hand
    return embeddings


def _borders(sentences: Sequence[str], hands: np.ndarray, tokens_per_batch: int) -> list[tuple[int, int]]:
    """Where one forward pass ends and the next begins; the same on every rank, since it looks at all of them."""
    borders, first, tokens = [], 0, 0
    for number, row in enumerate(hands):
        longest = 2 + max(len(sentences[one]) for one in row) // CHARACTERS_PER_TOKEN
        if number > first and tokens + longest > tokens_per_batch:
            borders.append((first, number))
            first, tokens = number, 0
        tokens += longest
    return [*borders, (first, len(hands))]
