"""The workers of a group, as one of them sees them; a process without a group is the only one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

import torch.distributed as dist

from sentdist.errors import SentdistError
from sentdist.learning.gather import rank_and_world_size

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This worker's number, and how many workers there are. Every worker must call each method, or the others wait for it.

    exchange: takes this worker's value, returns those of all workers in the order of their numbers. gather: likewise, but only the first
    worker gets them; the others get an empty list.
    """

    rank: int
    world_size: int
    exchange: Callable[[object], list[object]]
    gather: Callable[[object], list[object]]

    @property
    def is_first(self) -> bool:
        """Whether this worker speaks for the group."""
        return self.rank == 0

    @contextmanager
    def errors_on_all(self) -> Iterator[None]:
        """An error on one worker is raised on all of them (the first worker's, if several fail), so that none waits for one that has gone.

        Only a SentdistError is: any other error ends its worker, and with it the group.
        """
        error = None
        try:
            yield
        except SentdistError as found:
            error = found
        for said in self.exchange(error):
            if isinstance(said, SentdistError):
                raise said

    def from_first(self, make: Callable[[], Value]) -> Value:
        """What the first worker makes, on every worker; or its error."""
        made = None
        with self.errors_on_all():
            if self.is_first:
                made = make()
        return cast(Value, self.exchange(made)[0])

    def first_said(self, words: str | None) -> str | None:
        """The words of the first worker that has some; None where none has."""
        return next((str(said) for said in self.exchange(words) if said is not None), None)


ALONE = Ranks(rank=0, world_size=1, exchange=lambda said: [said], gather=lambda said: [said])


def ranks_here() -> Ranks:
    """The ranks of the training that this process belongs to; `ALONE` outside of a process group."""
    rank, world_size = rank_and_world_size()
    return ALONE if world_size == 1 else Ranks(rank=rank, world_size=world_size, exchange=_exchange, gather=_gather)


def _exchange(value: object) -> list[object]:
    said: list[object] = [value] * dist.get_world_size()
    dist.all_gather_object(said, value)
    return said


def _gather(value: object) -> list[object]:
    said: list[object] | None = [value] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(value, said)
    return said or []
