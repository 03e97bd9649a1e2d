"""Ranks as threads: what each says is given to all, as a gathering over processes does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sentdist.stages.train_setup import Ranks


def on_ranks(world_size: int, act: Callable[[Ranks], Any]) -> list[Any]:
    """What each rank gives, or the error that it raises."""
    barrier = threading.Barrier(world_size, timeout=30)
    said: list[object] = [None] * world_size
    results: list[Any] = [None] * world_size

    def run(rank: int) -> None:
        def exchange(value: object) -> list[object]:
            said[rank] = value
            barrier.wait()
            all_said = list(said)
            barrier.wait()
            return all_said

        def gather(value: object) -> list[object]:
            all_said = exchange(value)
            return all_said if rank == 0 else []

        try:
            results[rank] = act(Ranks(rank=rank, world_size=world_size, exchange=exchange, gather=gather))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a rank waits for another forever"
    return results
