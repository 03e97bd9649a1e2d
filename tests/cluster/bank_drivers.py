"""Drivers of their own for tests of banks: what cannot happen on the cluster that the other tests share.
`python -m tests.cluster.bank_drivers DRIVER STORE [ADDRESS]`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

from sentdist.learning.bank import FileBank
from sentdist.run.bank_owner import bank_owner
from sentdist.run.bank_reader import open_bank, order_of
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.cluster.artificial_banks import bank_stage

SMALL_STORE = 80 * 2**20  # bytes; Ray refuses less than 75 MiB


def makes_a_bank_and_ends(store: ArtifactStore, address: str = "auto") -> None:
    """A job that is the first to ask for a bank, and is gone afterwards."""
    ray.init(address=address, logging_level="ERROR")
    _check_rows(store, 0, 1)


def loses_a_node_and_runs_short(store: ArtifactStore) -> None:
    """A cluster whose second node dies with shards that nobody else has; then it is asked for more than its object store can hold."""
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="sd-ray-", dir="/tmp")
    # Cluster notes its address in the folder that Ray uses by default, whatever temp_dir says, and expects it to be there.
    os.environ["RAY_TMPDIR"] = folder
    Path(folder, "ray").mkdir()
    quick = {"initial_delay_ms": 0, "period_ms": 500, "timeout_ms": 2000, "failure_threshold": 3}
    checks = {f"health_check_{name}": value for name, value in quick.items()}
    head = {"num_cpus": 0, "object_store_memory": SMALL_STORE, "include_dashboard": False, "temp_dir": folder, "_system_config": checks}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        node = cluster.add_node(num_cpus=1, object_store_memory=SMALL_STORE)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        _lose(node, cluster, store)
        _check_rows(store, 0, 1, 2)
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _lose(node: Any, cluster: Any, store: ArtifactStore) -> None:
    """A node with shards that it holds alone. One that has just joined gets none until the head's scheduler knows it."""
    orders = [order_of(bank_stage(number), Context(store=store)) for number in (0, 1)]
    lost: tuple[str, ...] = ()
    for _ in range(20):
        held = ray.get(bank_owner(store.root).shards.remote(orders, lost))
        shards = [shard for bank in held for shard in bank.shards]
        ray.wait(shards, num_returns=len(shards), fetch_local=False)
        if any(place["node_ids"] == [node.node_id] for place in ray.experimental.get_object_locations(shards).values()):
            break
        lost = tuple(bank.generation for bank in held)
        time.sleep(0.5)
    else:
        raise AssertionError("no shard lies on the second node alone")
    cluster.remove_node(node, allow_graceful=False)
    _check_rows(store, 0)
    _check_rows(store, 1)
    again = ray.get(bank_owner(store.root).shards.remote(orders, ()))
    assert [bank.generation for bank in again] == [bank.generation for bank in held], "by lineage, not because they were asked for anew"


def _check_rows(store: ArtifactStore, *numbers: int) -> None:
    stages = tuple(bank_stage(number) for number in numbers)
    bank = open_bank(stages, Context(store=store))
    files = FileBank([store.folder(store.find(stage.key)) for stage in stages])
    ids = np.random.default_rng(0).integers(0, files.shapes[0].num_sentences, 1000)
    np.testing.assert_array_equal(bank.rows(ids).numpy(), files.rows(ids).numpy())


if __name__ == "__main__":
    driver, root, *rest = sys.argv[1:]
    os.environ["RAY_AUTH_MODE"] = "disabled"
    {"make": makes_a_bank_and_ends, "lose": loses_a_node_and_runs_short}[driver](ArtifactStore(root), *rest)
