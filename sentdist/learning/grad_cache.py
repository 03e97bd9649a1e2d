"""Exact steps in bounded memory: embeddings in micro-batches whose activations are recomputed, losses in blocks of anchors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sentdist.learning.batch import TokenBatch

LOGITS_AT_ONCE = 2**24  # 64 MiB in float32, and about three times that while a block is differentiated


def encode_in_micro_batches(encode: Callable[[TokenBatch], Tensor], tokens: TokenBatch, *, micro_batch: int | None) -> Tensor:
    """(S, D) embeddings of all sentences, holding the activations of `micro_batch` sentences at a time.

    What GradCache does (Gao et al. 2021, arXiv 2101.06983) without its second loop: each micro-batch keeps its embeddings and the random state
    only, and is encoded again, dropout and all, when the backward pass comes to it. So one loss and one backward pass serve every objective,
    with or without parameters of its own. The graphs of all micro-batches share the encoder's parameters, so each parameter gets its whole
    gradient at once, which is what ZeRO stages 1 and 2 need: a loop of backward passes is silently wrong there.
    Costs a second forward pass. Value and gradient are those of encoding the same micro-batches and keeping their activations.
    """
    if micro_batch is None or micro_batch >= tokens.num_sentences or not torch.is_grad_enabled():
        return encode(tokens)
    borders = range(0, tokens.num_sentences, micro_batch)
    parts = (tokens.select(first, min(first + micro_batch, tokens.num_sentences)) for first in borders)
    return torch.cat([checkpoint(encode, part, use_reentrant=False) for part in parts])


def mean_over_blocks(loss: Callable[[int, int], Tensor], *, num_rows: int, num_columns: int, logits_at_once: int | None = None) -> Tensor:
    """Mean over `num_rows` anchors of a loss, computed for blocks of anchors so that no more than `logits_at_once` logits exist at a time.

    loss(first, last): the mean over anchors `first` up to, not including, `last`, each against its `num_columns` candidates. The logits of a block
    are recomputed in the backward pass. One block, nothing recomputed, where all logits fit. Value and gradient do not depend on the blocks.
    """
    at_once = LOGITS_AT_ONCE if logits_at_once is None else logits_at_once
    block = max(1, at_once // max(1, num_columns))
    if block >= num_rows:
        return loss(0, num_rows)
    borders = [(first, min(first + block, num_rows)) for first in range(0, num_rows, block)]
    means = [checkpoint(loss, first, last, use_reentrant=False, preserve_rng_state=False) * (last - first) for first, last in borders]
    return torch.stack(means).sum() / num_rows
