"""What ranks send one another; a rank whose group is ended by somebody else stops, and does not go on as if it were alone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from sentdist.learning import gather
from sentdist.learning.gather import GroupGoneError, gather_rows, held_group, mean_over_ranks, of_first_rank, wait_for_all_ranks
from sentdist.learning.gradient_buckets import average_gradients
from tests.parity.processes import run_in_processes


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What goes over the network where a second rank always brings the same."""
    tensors: list[Tensor] = []

    def all_reduce(tensor: Tensor) -> None:
        tensors.append(tensor.clone())
        tensor *= 2

    monkeypatch.setattr(gather, "rank_and_world_size", lambda: (0, 2))
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    return tensors


@pytest.mark.usefixtures("sent")
def test_losses_are_averaged_and_votes_added_up() -> None:
    assert mean_over_ranks(torch.tensor(1.5), vote=3.0) == (1.5, 6.0)


EXCHANGES: dict[str, Callable[[], object]] = {
    "rows": lambda: gather_rows(torch.ones(2, 3)),
    "gradients": lambda: average_gradients([torch.nn.Parameter(torch.ones(3))]),
    "losses": lambda: mean_over_ranks(torch.tensor(1.0)),
    "scores": lambda: of_first_rank(1.0, device=torch.device("cpu")),
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
