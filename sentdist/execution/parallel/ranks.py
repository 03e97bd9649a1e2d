"""The workers of a group that stays, as one of them sees them."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from sentdist.learning.gather import rank_and_world_size


@dataclass(frozen=True)
class Ranks:
    """Numbers of this worker and of all; a process without a group is the only one."""

    rank: int
    world_size: int

    @property
    def is_first(self) -> bool:
        """Whether this worker speaks for the group."""
        return self.rank == 0

    def exchange(self, value: object) -> list[object]:
        """What each worker says, in the order of their numbers; all must call it."""
        said: list[object] = [value] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(said, value)
        return said


def ranks_here() -> Ranks:
    """Those of this process."""
    return Ranks(*rank_and_world_size())
