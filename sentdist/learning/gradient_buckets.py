"""Average gradients over ranks in flat buckets, each sent while the backward pass computes the next.

Of word embeddings, half of a small encoder and two thirds of a multilingual one, only the rows that a step has read are sent.
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

from sentdist.kernels.tensors import sent_to
from sentdist.learning.bank_shape import BUCKET_BYTES, MOST_ROWS
from sentdist.learning.gather import begin_mean, begin_union, rank_and_world_size


class WordRows:
    """The rows of a word embedding table (V, D) that are read in a step: on this rank, then on all. The padding row always counts as read.

    Kept on the host, where tokens come from, so that their number is known without waiting for a GPU.
    """

    def __init__(self, table: Parameter, *, padding: int) -> None:
        self.table = table
        self._device, self._padding = table.device, padding
        self._read_V = torch.zeros(len(table), dtype=torch.uint8)
        self._of_all_V = self._read_V
        self._end: Callable[[], None] | None = None

    def read(self, token_ids: Tensor) -> None:
        """Record that these rows are read. token_ids: on the host."""
        self._read_V[token_ids] = 1

    def begin_union(self) -> None:
        """Start sharing the rows with the other ranks, once all are read. Collective, once a step; does not wait."""
        self._of_all_V = self._read_V.clone()  # a recomputed micro-batch records its rows again while this is being sent
        self._of_all_V[self._padding] = 1
        self._end = begin_union(self._of_all_V)

    def of_all(self) -> Tensor | None:
        """Return the rows (R,) int64 that any rank has read, ascending, on the table's device; None if so many that the whole table should
        be sent.
        """
        self._wait()
        rows_R = self._of_all_V.nonzero().squeeze(1)
        return sent_to(rows_R, self._device) if len(rows_R) <= MOST_ROWS * len(self.table) else None

    def forget(self) -> None:
        """Reset for the next step."""
        self._wait()
        self._read_V.zero_()

    def _wait(self) -> None:
        if self._end is not None:
            self._end()
        self._end = None


def average_gradients(parameters: Iterable[Parameter]) -> None:
    """Replace every gradient by its mean over ranks, after a backward pass. All ranks run the same graph, so lack the same gradients."""
    GradientBuckets(parameters, leave_early=False).arrive()


class GradientBuckets:
    """The gradients of some parameters on one rank, averaged over all ranks during the backward pass.

    Buckets are filled from the last parameter to the first, the order of a backward pass, and are sent in this order on all ranks. A bucket
    is
    sent once all its parameters that ever had a gradient have theirs, so in the first step all are sent at the end. Micro-batches are
    one graph (see grad_cache.py): each gradient arrives whole.
    A gradient keeps its place in its bucket, since with three ranks and more the order of summation depends on the place. It stays
    stored there, so that buckets need no extra memory. A table of word embeddings has a separate bucket.
    """

    def __init__(self, parameters: Iterable[Parameter], *, words: Sequence[WordRows] = (), leave_early: bool = True) -> None:
        """words: tables among the parameters whose read rows are known. leave_early: False: send all in `arrive`."""
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
    def overlap_reduce(self) -> Iterator[None]:
        """Wrap a step's only backward pass: inside, buckets are sent."""
        self._is_open = True
        try:
            for rows in self._words:
                rows.begin_union()
            yield
        finally:
            self._is_open = False

    def arrive(self) -> None:
        """Send the remaining buckets and wait until every gradient is its mean over ranks. Collective."""
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
        """Return the L2 norm of all averaged gradients. Collective."""
        self.arrive()
        return get_total_norm([parameter.grad for parameter in self._parameters if parameter.grad is not None], foreach=True)

    def _take(self, number: int, parameter: Parameter) -> None:
        """Handle a new gradient of that bucket."""
        if not self._is_open:
            return
        self._buckets[number].take(parameter, is_late=number < self._num_away)
        while self._num_away < len(self._buckets) and self._buckets[self._num_away].is_full:
            self._buckets[self._num_away].leave()
            self._num_away += 1


@dataclass(kw_only=True)
class _Bucket:
    """Parameters of one type, and the state of their gradients in a step.

    known: had a gradient in an earlier step; None: this is the first. here: gradients computed in this step.
    late: gradients computed after the bucket was sent, their first ever. end: waits until the bucket has arrived.
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
            raise RuntimeError("a second backward pass in one step would change gradients that are being sent to the other ranks")
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
        """Send the gradients of some of the parameters, each at its place among zeros; return what waits for them."""
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
    """A table of word embeddings. Its gradient is not stored in a bucket: rows are copied out and back.

    is_lookup: rows that were not read have gradient 0, as in a lookup; checked when rows are first sent.
    Models that read other rows than those of their tokens send whole tables.
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
    """Return buckets of at most about BUCKET_BYTES, from the last parameter to the first, each of one type.

    alone: parameters with a separate bucket.
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
    """Return a hook of a parameter. The reference is weak: a learner outlives its engine and must not keep it."""

    def take(parameter: Tensor) -> None:
        if (found := buckets()) is not None:
            found._take(number, cast(Parameter, parameter))

    return take


def _remove(hooks: Iterable[Any]) -> None:
    for hook in hooks:
        hook.remove()
