"""What ranks send one another; a rank whose group is ended by somebody else stops, and does not go on as if it were alone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from sentdist.learning.gather import (
    GroupGoneError,
    gather_rows,
    held_group,
    mean_over_ranks,
    wait_for_all_ranks,
)
from tests.parity.processes import run_in_processes

EXCHANGES: dict[str, Callable[[], object]] = {
    "rows": lambda: gather_rows(torch.ones(2, 3)),
    "losses": lambda: mean_over_ranks(torch.tensor(1.0)),
    "barrier": wait_for_all_ranks,
}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_rank_whose_group_is_ended_stops_at_its_next_exchange(exchange: str) -> None:
    assert run_in_processes(_raises_after_end, 2, exchange) == [True, True]


def _raises_after_end(rank: int, world_size: int, exchange: str) -> bool:
    with held_group():
        EXCHANGES[exchange]()
        dist.barrier()
        ending = threading.Thread(target=dist.destroy_process_group)
        ending.start()
        ending.join()
        try:
            EXCHANGES[exchange]()
            return False
        except GroupGoneError:
            return True
        finally:  # the one that `run_in_processes` ends
            dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
