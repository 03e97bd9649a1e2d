"""Channels of an embedding, and the losses of the soft labels that they are asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sentdist.errors import RecipeError
from sentdist.learning.encoder.batch import Batch
from sentdist.learning.targets import WordShares

POS_SHARE = 128 / 768  # of the channels, as the poster splits RoBERTa-base's 768


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Which part of an embedding of width D stands for what: first the tags' channels, then the words'."""

    pos: int
    bow: int

    @classmethod
    def of(cls, width: int, sizes: tuple[int, int] | None = None) -> Channels:
        """The channels of an encoder of `width`: `sizes` (tags, words), or 128 : 640 of it, rounded;
        RecipeError unless they add up to the width."""
        if sizes is None:
            pos = max(1, round(width * POS_SHARE))
            sizes = (pos, width - pos)
        if min(sizes) < 1 or sum(sizes) != width:
            fitting = cls.of(width) if width > 1 else None
            raise RecipeError(
                where="auxiliary.channels",
                found=f"{sizes[0]} + {sizes[1]} = {sum(sizes)}",
                expected=f"two numbers above 0 that add up to the encoder's width, {width}",
                remedy=f"Write [{fitting.pos}, {fitting.bow}], or leave channels out." if fitting else "Take a wider encoder.",
            )
        return cls(pos=sizes[0], bow=sizes[1])

    def split(self, embeddings_SD: Tensor) -> tuple[Tensor, Tensor]:
        """(S, pos) and (S, bow) views."""
        pos_SD, bow_SD = embeddings_SD.split([self.pos, self.bow], dim=-1)
        return pos_SD, bow_SD


def cross_entropy_of_tags(logits_SV: Tensor, shares_SV: Tensor) -> Tensor:
    """CE(t, ŷ) = −Σ_c t_c log ŷ_c with ŷ the softmax of logits (S, V) and t soft labels (S, V): nats, mean over S.

    A row whose shares are all 0 counts 0 in the mean. Source: John et al. 2019 (ACL P19-1041), without the label smoothing of their code.
    """
    log_total_S = logits_SV.logsumexp(dim=-1)
    return (shares_SV.sum(dim=-1) * log_total_S - (shares_SV * logits_SV).sum(dim=-1)).mean()


def cross_entropy_of_words(logits_SV: Tensor, words: WordShares) -> Tensor:
    """As `cross_entropy_of_tags` for sparse labels: equal to it, without a second (S, V) tensor.
    A sentence without a word counts 0 in the mean."""
    log_total_S = logits_SV.logsumexp(dim=-1)
    reached_S = words.summed(words.shares * logits_SV[words.rows, words.words])
    return (words.mass * log_total_S - reached_S).mean()


def entropy(logits_SV: Tensor, counted_S: Tensor) -> Tensor:
    """H(ŷ) = −Σ ŷ log ŷ of the softmax of logits (S, V): nats, mean over S, in [0, ln V]; rows not in `counted_S` (bool) count 0."""
    log_shares_SV = logits_SV.log_softmax(dim=-1)
    return (-(log_shares_SV.exp() * log_shares_SV).sum(dim=-1) * counted_S).mean()


def local_ids(batch: Batch) -> np.ndarray:
    """(C·B,) ids of the sentences of `batch.tokens`, in their order."""
    return batch.sentence_ids[:, batch.first_row : batch.first_row + batch.num_rows].ravel()
