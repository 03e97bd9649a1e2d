"""Losses in bounded memory: blocks of anchors, of which one's logits are there at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sentdist.learning.encoder.batch import Batch
from sentdist.learning.objective import anchors_and_candidates

LOGITS_AT_ONCE = 2**24  # 64 MiB in float32, and about three times that while a block is differentiated
LOGITS_SHARE = 1 / 16  # of a GPU's memory, for these three: there a small block costs the host more time than the GPU


def mean_over_blocks(loss: Callable[[int, int], Tensor], *, num_rows: int, num_columns: int, device: torch.device) -> Tensor:
    """Mean over `num_rows` anchors of a loss, computed for blocks of anchors so small that a device may hold their logits.

    loss(first, last): the mean over anchors `first` up to, not including, `last`, each against its `num_columns` candidates.
    The logits of a block are recomputed in the backward pass. One block, nothing recomputed, where all logits fit.
    Value and gradient do not depend on the blocks.
    """
    block = max(1, logits_at_once(device) // max(1, num_columns))
    if block >= num_rows:
        return loss(0, num_rows)
    borders = [(first, min(first + block, num_rows)) for first in range(0, num_rows, block)]
    means = [checkpoint(loss, first, last, use_reentrant=False, preserve_rng_state=False) * (last - first) for first, last in borders]
    return torch.stack(means).sum() / num_rows


def logits_at_once(device: torch.device) -> int:
    """On a GPU by what this process may have of its memory, never by what is free: a resumed training computes the same blocks."""
    if device.type != "cuda":
        return LOGITS_AT_ONCE
    memory = torch.cuda.get_device_properties(device).total_memory * torch.cuda.get_per_process_memory_fraction(device)
    return max(LOGITS_AT_ONCE, int(LOGITS_SHARE * memory) // (3 * torch.float32.itemsize))


def against_candidates(loss: Callable[..., Tensor], embeddings: Tensor, batch: Batch) -> Tensor:
    """Mean over this rank's anchors of a loss against the candidates of all ranks, in such blocks.

    loss(anchors_BD, candidates_MD, first_row=…): the mean over these anchors, of which the first is that row of the global batch.
    """
    anchors_BD, candidates_MD = anchors_and_candidates(embeddings, batch)
    return mean_over_blocks(
        lambda first, last: loss(anchors_BD[first:last], candidates_MD, first_row=batch.first_row + first),
        num_rows=len(anchors_BD), num_columns=len(candidates_MD), device=embeddings.device,
    )  # fmt: skip
