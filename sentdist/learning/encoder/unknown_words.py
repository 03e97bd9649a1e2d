"""Sentences without a word that a tokenizer knows: texts that differ get one embedding, or embeddings that tell their length alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from transformers import PreTrainedTokenizerBase

from sentdist.learning.encoder.batch import TokenBatch


class UnknownWords:
    """Counts sentences of which some tokens are unknown and no other holds a letter or digit. first: the first of them; "": none."""

    def __init__(self) -> None:
        self.num_sentences, self.first = 0, ""

    def count(self, tokenizer: PreTrainedTokenizerBase, tokens: TokenBatch, sentences: Sequence[str], *, behind: int = 0) -> None:
        """Look at the tokens of these sentences. behind: so many tokens at the beginning of each, those of a prompt."""
        if tokenizer.unk_token_id is None or not tokens.num_sentences:
            return
        ids, starts = tokens.token_ids.numpy(), tokens.boundaries.numpy()[:-1]
        is_own = np.arange(len(ids)) - np.repeat(starts, tokens.lengths) >= behind
        is_unknown = (ids == tokenizer.unk_token_id) & is_own
        if not is_unknown.any():
            return
        has_unknown = np.maximum.reduceat(is_unknown, starts)
        has_word = np.maximum.reduceat(_is_word(tokenizer)[ids] & is_own, starts)
        found = np.flatnonzero(has_unknown & ~has_word)
        if len(found):
            self.first = self.first or sentences[int(found[0])]
            self.num_sentences += len(found)

    def add(self, others: UnknownWords) -> None:
        """Count those of sentences that come after these."""
        self.first = self.first or others.first
        self.num_sentences += others.num_sentences

    def taken(self) -> UnknownWords:
        """Those so far; what is counted from now on starts over."""
        taken = UnknownWords()
        taken.add(self)
        self.num_sentences, self.first = 0, ""
        return taken


@lru_cache(maxsize=4)
def _is_word(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """(V,) whether a token holds a letter or digit and is none of the special ones."""
    vocabulary = tokenizer.get_vocab()
    is_word = np.zeros(max(vocabulary.values()) + 1, dtype=bool)
    for token, number in vocabulary.items():
        is_word[number] = any(letter.isalnum() for letter in token)
    is_word[[number for number in tokenizer.all_special_ids if number is not None]] = False
    return is_word
