"""Exact steps in bounded memory: encode in micro-batches and compute losses in blocks, both recomputed in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sentdist.kernels.tensors import sent_to
from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.objective import anchors_and_candidates
from sentdist.learning.prefetch import drawn_again

LOGITS_AT_ONCE = 2**24  # 64 MiB in float32, and about three times that while a block is differentiated
LOGITS_SHARE = 1 / 16  # of a GPU's memory, for these three: a small block costs the host more time than the GPU


def mean_over_blocks(loss: Callable[[int, int], Tensor], *, num_rows: int, num_columns: int, device: torch.device) -> Tensor:
    """Return the mean of a loss over `num_rows` anchors, computed in blocks whose logits fit the device's memory limit.

    loss(first, last) is the mean over anchors `first` up to, not including, `last`, each against `num_columns` candidates.
    The logits of a block are recomputed in the backward pass; one block, nothing recomputed, if all logits fit.
    Value and gradient do not depend on the blocks.
    """
    block = max(1, logits_at_once(device) // max(1, num_columns))
    if block >= num_rows:
        return loss(0, num_rows)
    borders = [(first, min(first + block, num_rows)) for first in range(0, num_rows, block)]
    means = [checkpoint(loss, first, last, use_reentrant=False, preserve_rng_state=False) * (last - first) for first, last in borders]
    return torch.stack(means).sum() / num_rows


def logits_at_once(device: torch.device) -> int:
    """Return the logits per block; on a GPU by this process's memory limit, not free memory, so that a resumed training has the same
    blocks.
    """
    if device.type != "cuda":
        return LOGITS_AT_ONCE
    memory = torch.cuda.get_device_properties(device).total_memory * torch.cuda.get_per_process_memory_fraction(device)
    return max(LOGITS_AT_ONCE, int(LOGITS_SHARE * memory) // (3 * torch.float32.itemsize))


def against_candidates(loss: Callable[..., Tensor], embeddings: Tensor, batch: Batch) -> Tensor:
    """Return the mean over this rank's anchors of a loss against the candidates of all ranks, in blocks.

    loss(anchors_BD, candidates_MD, first_row=…) is the mean over these anchors; the first is that row of the global batch.
    """
    anchors_BD, candidates_MD = anchors_and_candidates(embeddings, batch)
    return mean_over_blocks(
        lambda first, last: loss(anchors_BD[first:last], candidates_MD, first_row=batch.first_row + first),
        num_rows=len(anchors_BD), num_columns=len(candidates_MD), device=embeddings.device,
    )  # fmt: skip


TOKENS_MULTIPLE = 64  # of a micro-batch: tensors of few sizes keep the C library's heap small; costs 1 % at 3000 tokens


def encode_in_micro_batches(
    encode: Callable[[TokenBatch], Tensor], tokens: TokenBatch, *, micro_batch: int | None, most: int | None = None
) -> Tensor:
    """Return the (S, D) embeddings of all sentences, holding the activations of at most `micro_batch` sentences at a time.

    GradCache (Gao et al. 2021, arXiv 2101.06983) without its second loop: each micro-batch keeps only its embeddings and the random
    state, and is encoded again, with the same dropout, in the backward pass. So one loss and one backward pass serve every
    objective, with or without own parameters. The graphs of all micro-batches share the encoder's parameters, so each parameter gets
    its whole gradient at once, as ZeRO stages 1 and 2 need: a loop of backward passes is silently wrong there.
    Costs a second forward pass. Value and gradient are those of encoding the same micro-batches and keeping their activations.
    Micro-batches are padded to a multiple of TOKENS_MULTIPLE tokens, so that their sizes are nearly equal.
    most: sentences of the rank that has the most; None: as many as here. Every rank runs as many passes as that one, since ZeRO stage 3
    gathers parameters in each; a rank with fewer sentences encodes its first one again and drops it.
    """
    rows_of = _rows_of_passes(tokens, micro_batch, most)
    if rows_of is None:
        return encode(tokens)
    parts = [_recomputed(_encode_filled, encode, tokens.take(rows or [0])) for rows in rows_of]
    place = torch.argsort(torch.tensor(list(chain.from_iterable(rows_of))))
    embeddings_SD = torch.cat([part[: len(rows)] for part, rows in zip(parts, rows_of, strict=True)])
    return embeddings_SD.index_select(0, sent_to(place, embeddings_SD.device))


def sum_over_micro_batches(
    sums: Callable[[TokenBatch], Tensor], tokens: TokenBatch, *, micro_batch: int | None, most: int | None = None
) -> Tensor:
    """Return `sums` of all sentences, a sum over sentences, in as many passes as `encode_in_micro_batches`."""
    rows_of = _rows_of_passes(tokens, micro_batch, most)
    if rows_of is None:
        return sums(tokens)
    parts = [_recomputed(sums, tokens.take(rows or [0])) for rows in rows_of]
    return torch.stack([part if rows else part * 0.0 for part, rows in zip(parts, rows_of, strict=True)]).sum(dim=0)


def micro_batches(lengths: Sequence[int], *, size: int, most: int | None = None) -> list[list[int]]:
    """Split sentences into the fewest micro-batches of at most `size`, with nearly equal numbers of tokens.

    Sentences are dealt by falling length, back and forth. Consecutive sentences would not do: the columns of a batch differ (NLI's premises
    are twice as long as its hypotheses), and memory has to hold the longest micro-batch.
    most: use the number of micro-batches of so many sentences; some may stay empty.
    """
    count = -(-(len(lengths) if most is None else most) // size)
    falling = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    parts: list[list[int]] = [[] for _ in range(count)]
    for turn, first in enumerate(range(0, len(falling), count)):
        order = parts if turn % 2 == 0 else reversed(parts)
        for rows, row in zip(order, falling[first : first + count], strict=False):
            rows.append(row)
    return parts


def _recomputed(function: Callable[..., Tensor], *arguments: object) -> Tensor:
    """Call the function; recompute its activations in the backward pass, with the same random numbers."""
    found: Tensor = checkpoint(function, *arguments, use_reentrant=False, context_fn=drawn_again)
    return found


def _encode_filled(encode: Callable[[TokenBatch], Tensor], tokens: TokenBatch) -> Tensor:
    return encode(tokens.filled(TOKENS_MULTIPLE))[: tokens.num_sentences]


def _rows_of_passes(tokens: TokenBatch, micro_batch: int | None, most: int | None) -> list[list[int]] | None:
    """Return the sentences of each micro-batch; None if one pass keeps all activations, or none are needed."""
    most = tokens.num_sentences if most is None else most
    if micro_batch is None or micro_batch >= most or not torch.is_grad_enabled():
        return None
    return micro_batches(tokens.lengths, size=micro_batch, most=most)
