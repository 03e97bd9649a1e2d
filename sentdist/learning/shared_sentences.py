"""How the ranks of a training embed one list of sentences together, in lockstep, again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from sentdist.learning.encoder.batch import TokenBatch
from sentdist.learning.gather import gather_rows, rank_and_world_size

CHARACTERS_PER_TOKEN = 4  # of English text, roughly; only the size of a batch depends on it


class SharedSentences:
    """A list of sentences, tokenized once; each unique one is embedded by one of the ranks.

    Every rank runs equally many forward passes, as ZeRO stage 3 asks (it gathers parameters in each): sentences are sorted by length and
    distributed round-robin; short ranks are padded with the longest one, whose extra embeddings are dropped.
    """

    def __init__(self, sentences: Sequence[str], tokenize: Callable[[Sequence[str]], TokenBatch], *, tokens_per_batch: int) -> None:
        unique = list(dict.fromkeys(sentences))
        number = {sentence: place for place, sentence in enumerate(unique)}
        rank, world_size = rank_and_world_size()
        order = np.argsort([-len(sentence) for sentence in unique], kind="stable")
        filled = np.concatenate([np.repeat(order[:1], -len(order) % world_size), order])
        hands = filled.reshape(-1, world_size)  # one row: a sentence for each rank
        self._passes = [
            tokenize([unique[place] for place in hands[first:last, rank]]) for first, last in _borders(unique, hands, tokens_per_batch)
        ]
        place_of = np.empty(len(unique), dtype=np.int64)  # in what is gathered: rank by rank
        place_of[filled] = np.arange(len(filled)).reshape(world_size, -1).T.ravel()
        self._places = place_of[[number[sentence] for sentence in sentences]]

    def embedded(self, encode: Callable[[TokenBatch], Tensor]) -> np.ndarray:
        """(S, D) float32 embeddings, in the order given, repetitions included, on every rank."""
        with torch.no_grad():
            gathered = gather_rows(torch.cat([encode(tokens) for tokens in self._passes]).float())
        embeddings: np.ndarray = gathered.cpu().numpy()[self._places]
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
