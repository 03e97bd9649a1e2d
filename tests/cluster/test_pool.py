"""Pools of workers: they begin as there is room, give a lost part to another worker, and end when a part kills them all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.pool_workers import Deadly, Squarer, Stuck
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

WITHIN_S = 400.0  # some seconds; what hangs hangs forever


def test_a_pool_needs_only_one_worker_and_gives_a_lost_part_to_another(cluster: Any, tmp_path: Path) -> None:
    """Two pools on two CPUs of which one is taken: neither can have all its workers."""
    import ray

    from sentdist.execution.demand import Demand
    from sentdist.execution.parallel.pool import over_workers

    demand = Demand(way="pool", workers=2, num_cpus=1.0, num_gpus=0.0)
    taken = ray.util.placement_group([{"CPU": 1}])
    ray.get(taken.ready())
    found: list[dict[int, int]] = [{}, {}]

    def run(pool: int) -> None:
        (tmp_path / str(pool)).mkdir()
        found[pool].update(over_workers(Squarer, (tmp_path / str(pool),), range(8), demand=demand, where="squares"))

    threads = [threading.Thread(target=run, args=(pool,), daemon=True) for pool in (0, 1)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=WITHIN_S)
    finally:
        ray.util.remove_placement_group(taken)
    assert found == [{part: part * part for part in range(8)}] * 2
    wait_for(lambda: ray.available_resources().get("CPU") == 2, what="free CPUs")


def test_a_part_that_kills_its_workers_ends_the_pool(cluster: Any) -> None:
    from sentdist.errors import ResourceError
    from sentdist.execution.demand import Demand
    from sentdist.execution.parallel.pool import over_workers

    demand = Demand(way="pool", workers=2, num_cpus=1.0, num_gpus=0.0)
    with pytest.raises(ResourceError, match=r"bank x: found a part whose worker was lost 4 times .*what is finished is kept"):
        list(over_workers(Deadly, (), [0, 1], demand=demand, where="bank x"))


def test_who_would_get_too_far_ahead_of_a_slow_worker_does_its_part(cluster: Any, tmp_path: Path) -> None:
    """And the pool ends without waiting for it."""
    import ray

    from sentdist.execution.demand import Demand
    from sentdist.execution.parallel.pool import over_workers

    demand = Demand(way="pool", workers=2, num_cpus=1.0, num_gpus=0.0)
    found = list(over_workers(Stuck, (tmp_path,), range(12), demand=demand, where="squares", ahead_per_worker=2))
    assert (tmp_path / "stuck").exists() and sorted(found) == [(part, part * part) for part in range(12)]
    wait_for(lambda: ray.available_resources().get("CPU") == 2, what="free CPUs")
