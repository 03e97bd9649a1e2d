"""Gradients as means over ranks: in flat buckets, each of which travels while the backward pass still computes the next.

Of word embeddings, which are half of a small encoder and two thirds of a multilingual one, the rows travel that the step has read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils import get_total_norm

from sentdist.learning.bank_shape import BUCKET_BYTES, MOST_ROWS
from sentdist.learning.encoder.tokens import sent_to
from sentdist.learning.gather import begin_mean, begin_union, rank_and_world_size


class WordRows:
    """The rows of a table of word embeddings that are read in a step: on this rank, then on all.

    table: the embeddings (V, D), on their device.
    padding: the row that stands where a sentence has ended; it counts as read in every step.
    Kept on the host, where tokens come from, so that nobody waits for a GPU to learn how many rows there are.
    """

    def __init__(self, table: Parameter, *, padding: int) -> None:
        self.table = table
        self._device, self._padding = table.device, padding
        self._read_V = torch.zeros(len(table), dtype=torch.uint8)
        self._of_all_V = self._read_V
        self._end: Callable[[], None] | None = None

    def read(self, token_ids: Tensor) -> None:
        """These rows are read. token_ids: on the host."""
        self._read_V[token_ids] = 1

    def begin_union(self) -> None:
        """Begin to tell the other ranks, once all has been read. Collective, once a step; nobody waits."""
        self._of_all_V = self._read_V.clone()  # while this is away, a micro-batch that is computed again says once more what it reads
        self._of_all_V[self._padding] = 1
        self._end = begin_union(self._of_all_V)

    def of_all(self) -> Tensor | None:
        """The rows (R,) int64 that any rank has read, ascending, on the table's device; None where they are so many that the whole table
        may as well travel."""
        self._wait()
        rows_R = self._of_all_V.nonzero().squeeze(1)
        return sent_to(rows_R, self._device) if len(rows_R) <= MOST_ROWS * len(self.table) else None

    def forget(self) -> None:
        """Make ready for the next step."""
        self._wait()
        self._read_V.zero_()

    def _wait(self) -> None:
        if self._end is not None:
            self._end()
        self._end = None


def average_gradients(parameters: Iterable[Parameter]) -> None:
    """Replace every gradient by its mean over ranks, after a backward pass; nothing to do where there is one rank.

    A parameter without a gradient has none on any rank, for all ranks run the same graph.
    """
    GradientBuckets(parameters, leave_early=False).arrive()


class GradientBuckets:
    """The gradients of some parameters on one rank, averaged over all ranks during the backward pass.

    Buckets are filled from the last parameter to the first, as a backward pass comes to them, and leave in this order on all ranks. One
    leaves once all of its parameters that ever had a gradient have theirs; so in the first step all leave at its end. Micro-batches are
    one graph (see grad_cache.py): a gradient that comes is whole.
    A gradient keeps its place in its bucket whoever else has one, for three ranks and more add up in an order that depends on the place.
    It lies there from then on, so that buckets take no memory beside the gradients. A table of word embeddings has a bucket of its own.
    """

    def __init__(self, parameters: Iterable[Parameter], *, words: Sequence[WordRows] = (), leave_early: bool = True) -> None:
        """words: what is known of tables among the parameters. leave_early: False: all leave in `arrive`."""
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._words = words
        rows_of = {rows.table: rows for rows in words}
        self._buckets = [
            _TableBucket(parameters=some, rows=rows_of[some[0]]) if some[0] in rows_of else _Bucket(parameters=some)
            for some in _filled(self._parameters, alone=set(rows_of))
        ]
        self._is_open = False
        self._num_away = 0
        if not leave_early or rank_and_world_size()[1] == 1:
            return
        hooks = [
            parameter.register_post_accumulate_grad_hook(_calls(weakref.ref(self), number))
            for number, bucket in enumerate(self._buckets)
            for parameter in bucket.parameters
        ]
        weakref.finalize(self, _remove, hooks).atexit = False

    @contextmanager
    def travelling(self) -> Iterator[None]:
        """Around a step's only backward pass: inside, buckets leave."""
        self._is_open = True
        try:
            for rows in self._words:
                rows.begin_union()
            yield
        finally:
            self._is_open = False

    def arrive(self) -> None:
        """Send what has not left, and wait until every gradient is its mean over ranks. Collective."""
        if rank_and_world_size()[1] == 1:
            return
        for bucket in self._buckets[self._num_away :]:
            bucket.leave()
        for bucket in self._buckets:
            bucket.arrive()
        for rows in self._words:
            rows.forget()
        self._num_away = 0

    def averaged_norm(self) -> Tensor:
        """The L2 norm of all gradients, once they have arrived. Collective."""
        self.arrive()
        return get_total_norm([parameter.grad for parameter in self._parameters if parameter.grad is not None], foreach=True)

    def _take(self, number: int, parameter: Parameter) -> None:
        """A gradient has come, of that bucket."""
        if not self._is_open:
            return
        self._buckets[number].take(parameter, is_late=number < self._num_away)
        while self._num_away < len(self._buckets) and self._buckets[self._num_away].is_full:
            self._buckets[self._num_away].leave()
            self._num_away += 1


@dataclass(kw_only=True)
class _Bucket:
    """Some parameters of one type, and where their gradients are in a step: here or away.

    known: those that had a gradient in an earlier step; None: this is the first step. here: whose gradients have come in this one.
    late: whose gradients came when the bucket had left, for they never had one before. end: waits until the bucket has arrived.
    """

    parameters: Sequence[Parameter]
    known: set[Parameter] | None = None
    here: set[Parameter] = field(default_factory=set)
    late: list[Parameter] = field(default_factory=list)
    end: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        return self.known is not None and self.known <= self.here

    def take(self, parameter: Parameter, *, is_late: bool) -> None:
        if parameter in self.here:
            raise RuntimeError("a second backward pass in one step would add to gradients that are on their way to the other ranks")
        self.here.add(parameter)
        if is_late:
            self.late.append(parameter)

    def leave(self) -> None:
        self.end = self._send([parameter for parameter in self.parameters if parameter.grad is not None])

    def arrive(self) -> None:
        late = self._send(self.late)
        for end in (self.end, late):
            if end is not None:
                end()
        self.known = (self.known or set()) | self.here
        self.here, self.late, self.end = set(), [], None

    def _send(self, some: Sequence[Parameter]) -> Callable[[], None] | None:
        """Let the gradients of some of the parameters leave, each at its place among zeros; what ends their travel."""
        if not some:
            return None
        only, chosen = len(self.parameters) == 1, set(some)
        parts = [one.grad if one in chosen and one.grad is not None else torch.zeros_like(one) for one in self.parameters]
        flat = parts[0].contiguous().view(-1) if only else torch.cat([part.reshape(-1) for part in parts])
        for parameter, part in zip(self.parameters, flat.split([part.numel() for part in parts]), strict=True):
            if parameter in chosen:
                parameter.grad = part.view_as(parameter)
        return begin_mean(flat)


@dataclass(kw_only=True)
class _TableBucket(_Bucket):
    """A table of word embeddings. Its gradient does not lie in a bucket: rows are taken out of it and put back.

    is_lookup: whether rows that were not read have the gradient 0, as it is with a lookup, looked at when rows are to travel for the first
    time. There may be models that read rows by other numbers than those of their tokens; their tables travel whole.
    """

    rows: WordRows
    is_lookup: bool | None = None

    def _send(self, some: Sequence[Parameter]) -> Callable[[], None] | None:
        rows_R = self.rows.of_all() if some else None
        if rows_R is None:
            return super()._send(some)
        gradient_VD = cast(Tensor, self.rows.table.grad)
        if self.is_lookup is None:
            self.is_lookup = not _on_any_rank(gradient_VD.any(dim=1).index_fill(0, rows_R, False).any())
        if not self.is_lookup:
            return super()._send(some)
        travelling_RD = gradient_VD.index_select(0, rows_R)
        end = begin_mean(travelling_RD)

        def put_back() -> None:
            end()
            gradient_VD.index_copy_(0, rows_R, travelling_RD)

        return put_back


def _on_any_rank(flag: Tensor) -> bool:
    shared = flag.to("cpu", torch.uint8).reshape(1)
    begin_union(shared)()
    return bool(shared)


def _filled(parameters: Sequence[Parameter], *, alone: set[Parameter]) -> list[list[Parameter]]:
    """Buckets of at most about BUCKET_BYTES, from the last parameter to the first; tensors of two types are never in one.

    alone: parameters with a bucket of their own.
    """
    buckets: list[list[Parameter]] = []
    num_bytes = 0
    kind: object = None
    for parameter in reversed(parameters):
        of_parameter = (parameter.dtype, parameter.device, id(parameter) if parameter in alone else None)
        if not buckets or num_bytes + parameter.nbytes > BUCKET_BYTES or kind != of_parameter:
            buckets.append([])
            num_bytes, kind = 0, of_parameter
        buckets[-1].append(parameter)
        num_bytes += parameter.nbytes
    return buckets


def _calls(buckets: weakref.ref[GradientBuckets], number: int) -> Callable[[Tensor], None]:
    """A hook of a parameter. A learner outlives its engine, and must not keep it."""

    def take(parameter: Tensor) -> None:
        if (found := buckets()) is not None:
            found._take(number, cast(Parameter, parameter))

    return take


def _remove(hooks: Iterable[Any]) -> None:
    for hook in hooks:
        hook.remove()
