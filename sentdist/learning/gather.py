"""Communication between ranks: gather rows with their gradient, means, waiting times, and embeddings shared among ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from sentdist.errors import DataError, ResourceError
from sentdist.learning.encoder.tokens import TokenBatch

GPU_BACKEND = "cpu:gloo,cuda:nccl"  # NCCL alone serves no host tensors, which messages between ranks are

_seconds_waited = 0.0
_held: tuple[int, int] | None = None


class GroupGoneError(RuntimeError):
    """The process group of this rank was ended from outside, e.g. because a peer is gone."""


@contextmanager
def held_group() -> Iterator[None]:
    """Inside, losing the process group is an error; otherwise this rank would continue alone, with a share of each batch.

    Ray Train ends the group of all remaining workers, from another thread, as soon as it notices that one is gone.
    """
    global _held
    _held = rank_and_world_size()
    try:
        yield
    finally:
        _held = None


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks: (0, 1) without a process group.

    GroupGoneError inside `held_group` if the group has changed.
    """
    here = (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)
    if _held is not None and here != _held:
        raise GroupGoneError(f"rank {_held[0]} of {_held[1]} lost its process group: another worker of the group is gone")
    return here


def local_rows(num_rows: int, *, rank: int, world_size: int) -> range:
    """Return the rows of a global batch that belong to `rank`. If they do not divide evenly, the first ranks have one more.

    ResourceError if there are more ranks than rows.
    """
    if num_rows < world_size:
        raise ResourceError(
            where="batch size",
            found=f"{num_rows} rows for {world_size} workers",
            expected="at least a row for each",
            remedy="Choose a larger batch or fewer workers.",
        )
    share, num_larger = divmod(num_rows, world_size)
    first = rank * share + min(rank, num_larger)
    return range(first, first + share + (rank < num_larger))


def largest_share(num_rows: int) -> int:
    """Return the rows of the rank that has the most of a global batch."""
    return -(-num_rows // rank_and_world_size()[1])


def by_share(mean: Tensor, num_rows: int, *, of: int) -> Tensor:
    """Scale the mean over this rank's rows to its part of the mean over all `of` rows, which is the mean of these parts over ranks."""
    weight = num_rows * rank_and_world_size()[1] / of
    return mean if weight == 1.0 else mean * weight


def gather_rows(local_BD: Tensor, *, of: int | None = None) -> Tensor:
    """Return all ranks' rows (M, ...) in rank order, from (B, ...) rows on each rank; the same tensor on a single rank.

    The gradient is exact: the gradients of all ranks' losses for a row are summed on the rank that owns the row.
    So for a loss that is a mean over local anchors against all candidates, scaled `by_share`,
    gradients averaged over ranks are those of one process that holds the whole batch;
    a gather without gradient is wrong by 28 % (measured over two ranks in float64).
    of: M, if the shares are those of `local_rows` (DataError if not); None: all ranks bring the same shape.
    """
    rank, world_size = rank_and_world_size()
    if world_size == 1:
        return local_BD
    if of is None or of % world_size == 0:
        gathered: Tensor = _GatherRows.apply(local_BD)
        return gathered
    shares = [len(local_rows(of, rank=other, world_size=world_size)) for other in range(world_size)]
    if len(local_BD) != shares[rank]:
        raise DataError(
            where="batch",
            found=f"{len(local_BD)} rows on rank {rank} of {world_size}",
            expected=f"its {shares[rank]} of {of}",
            remedy="Give every rank its rows of gather.local_rows.",
        )
    filled = torch.cat([local_BD, local_BD.new_zeros((shares[0] - shares[rank], *local_BD.shape[1:]))])  # a collective needs equal shapes
    parts = _GatherRows.apply(filled).split(shares[0])
    return torch.cat([part[:share] for part, share in zip(parts, shares, strict=True)])


class _GatherRows(torch.autograd.Function):
    """all_gather forward, reduce_scatter (sum) backward."""

    @staticmethod
    def forward(ctx: Any, local_BD: Tensor) -> Tensor:
        local_BD = local_BD.contiguous()
        gathered_MD = local_BD.new_empty((dist.get_world_size() * local_BD.shape[0], *local_BD.shape[1:]))
        with waiting():
            dist.all_gather_single(gathered_MD, local_BD)
        return gathered_MD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient_MD = gradients[0].contiguous()
        gradient_BD = gradient_MD.new_empty((gradient_MD.shape[0] // dist.get_world_size(), *gradient_MD.shape[1:]))
        with waiting():
            dist.reduce_scatter_single(gradient_BD, gradient_MD)
        return gradient_BD


def begin_mean(flat: Tensor) -> Callable[[], None]:
    """Start turning a tensor into its mean over ranks, in place; call the result to wait for it. GroupGoneError as in
    `rank_and_world_size`.
    """
    world_size = rank_and_world_size()[1]
    work = dist.all_reduce(flat, async_op=True)

    def end() -> None:
        with waiting():
            work.wait()
        flat.div_(world_size)

    return end


def begin_union(flags: Tensor) -> Callable[[], None]:
    """Start setting in a tensor of zeros and ones what any rank has set, in place; call the result to wait for it.

    flags: uint8, on the host. GroupGoneError as in `rank_and_world_size`.
    """
    rank_and_world_size()
    work = dist.all_reduce(flags, op=dist.ReduceOp.MAX, async_op=True)

    def end() -> None:
        with waiting():
            work.wait()

    return end


def mean_over_ranks(value: Tensor, *, vote: float = 0.0) -> tuple[float, float]:
    """Return the mean over ranks of a scalar, not finite if it is not finite on any rank, and the sum over ranks of their votes.

    One collective for both, on the device of `value`: an NCCL group serves no other.
    """
    if rank_and_world_size()[1] == 1:
        return float(value.detach().double()), vote
    mean, votes = unread_mean_over_ranks(value, vote=vote).tolist()
    return mean, votes


def unread_mean_over_ranks(value: Tensor, *, vote: float = 0.0) -> Tensor:
    """Return the result of `mean_over_ranks` as (2,) float64 on the device of `value`, without waiting."""
    value = value.detach().double()
    both = torch.stack([value, torch.full_like(value, vote)])
    world_size = rank_and_world_size()[1]
    if world_size > 1:
        with waiting():
            dist.all_reduce(both)
        both[0] /= world_size
    return both


def of_first_rank(value: float, *, device: torch.device) -> float:
    """Return rank 0's number: on different processors its last digits differ, and ranks must decide alike.

    device: one that the group serves.
    """
    if rank_and_world_size()[1] == 1:
        return value
    shared = torch.tensor([value], dtype=torch.float64, device=device)
    with waiting():
        dist.broadcast(shared, src=0)
    return shared.item()


def wait_for_all_ranks() -> None:
    """Return once every rank has called this."""
    if rank_and_world_size()[1] > 1:
        with waiting():
            dist.barrier()


def seconds_waited() -> float:
    """Return the seconds this process has spent in this module's collectives since it began; only differences matter.

    On a GPU collectives return before they end, so this counts what the host waited.
    """
    return _seconds_waited


@contextmanager
def waiting() -> Iterator[None]:
    """Count the time inside as time spent waiting for other ranks."""
    global _seconds_waited
    began = time.perf_counter()
    try:
        yield
    finally:
        _seconds_waited += time.perf_counter() - began


CHARACTERS_PER_TOKEN = 4  # of English text, roughly; only the size of a batch depends on it


class SharedSentences:
    """A list of sentences, tokenized once; each unique one is embedded by one of the ranks.

    Every rank runs the same number of forward passes, as ZeRO stage 3 needs (it gathers parameters in each): sentences are sorted by length
    and distributed round-robin; short ranks are padded with the longest one, whose extra embeddings are dropped.
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
        """Return (S, D) float32 embeddings, in the order given, repetitions included, on every rank."""
        with torch.no_grad():
            gathered = gather_rows(torch.cat([encode(tokens) for tokens in self._passes]).float())
        embeddings: np.ndarray = gathered.cpu().numpy()[self._places]
        return embeddings


def _borders(sentences: Sequence[str], hands: np.ndarray, tokens_per_batch: int) -> list[tuple[int, int]]:
    """Return the row ranges of the forward passes; equal on every rank, since all rows are considered."""
    borders, first, tokens = [], 0, 0
    for number, row in enumerate(hands):
        longest = 2 + max(len(sentences[one]) for one in row) // CHARACTERS_PER_TOKEN
        if number > first and tokens + longest > tokens_per_batch:
            borders.append((first, number))
            first, tokens = number, 0
        tokens += longest
    return [*borders, (first, len(hands))]
