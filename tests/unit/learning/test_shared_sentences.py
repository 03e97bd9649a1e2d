"""A list of sentences that the ranks of a training embed together, as often as dev is scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.learning import gather as shared_sentences
from sentdist.learning.encoder.tokens import TokenBatch, collate
from sentdist.learning.gather import SharedSentences

SENTENCES = ["bb", "a" * 40, "bb", "cccc", "d" * 9, "e", "f" * 30, "e"]


class Tokenizer:
    """One token: a sentence's length. Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, sentences: Sequence[str]) -> TokenBatch:
        self.asked += sentences
        return collate([[len(sentence)] for sentence in sentences])


def _lengths_times(factor: float, passes: list[int]) -> Callable[[TokenBatch], Tensor]:
    def encode(tokens: TokenBatch) -> Tensor:
        passes.append(tokens.num_sentences)
        return factor * tokens.token_ids.double()[:, None]

    return encode


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_every_rank_has_all_embeddings_in_their_order_and_passes_as_often(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks: list[SharedSentences] = []
    of_ranks: list[Tensor] = []
    for rank in range(world_size):
        monkeypatch.setattr(shared_sentences, "rank_and_world_size", lambda rank=rank: (rank, world_size))
        ranks.append(SharedSentences(SENTENCES, Tokenizer(), tokens_per_batch=12))
    monkeypatch.setattr(shared_sentences, "gather_rows", lambda rows: of_ranks.append(rows) or torch.zeros(8, 1))
    passes: list[list[int]] = [[] for _ in ranks]
    for sentences, counted in zip(ranks, passes, strict=True):
        sentences.embedded(_lengths_times(0.5, counted))
    monkeypatch.setattr(shared_sentences, "gather_rows", lambda rows: torch.cat(of_ranks))
    for sentences in ranks:
        found = sentences.embedded(_lengths_times(0.5, []))
        assert found.dtype == np.float32
        assert found[:, 0].tolist() == [0.5 * len(sentence) for sentence in SENTENCES]
    assert all(counted == passes[0] for counted in passes)
    assert len(passes[0]) > 1
    assert sum(passes[0]) == -(-6 // world_size)  # of six unlike ones


def test_they_are_tokenized_once() -> None:
    tokenize = Tokenizer()
    sentences = SharedSentences(SENTENCES, tokenize, tokens_per_batch=12)
    first, second = (sentences.embedded(_lengths_times(factor, [])) for factor in (1.0, 3.0))
    assert sorted(tokenize.asked) == sorted(set(SENTENCES))
    np.testing.assert_array_equal(second, 3.0 * first)
