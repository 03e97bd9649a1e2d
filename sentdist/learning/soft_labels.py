"""Cross-entropy with shares in place of one label, and entropy: what the auxiliary tasks are made of."""

from __future__ import annotations

from torch import Tensor

from sentdist.learning.targets import WordShares


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
