"""Jobs for a cluster of several hosts: `python -m tests.cluster.host_scenes SCENE STORE`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sentdist.execution.bank_owner import list_banks
from sentdist.execution.embedding_bank import open_bank
from sentdist.learning.bank import FileBank
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.cluster.artificial_banks import bank_stage

IDS = np.arange(0, 900, 7)


@ray.remote(num_cpus=1)
def _look_up(root: str) -> np.ndarray:
    return open_bank((bank_stage(0), bank_stage(1)), Context(store=ArtifactStore(root))).rows(IDS).numpy()


def looks_up_on_every_host(root: str) -> None:
    """The rows of a bank, asked for on each node, equal those of its files; prints the addresses of the nodes that hold it."""
    store = ArtifactStore(root)
    nodes: list[dict[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
    there = [
        _look_up.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(root) for node in nodes
    ]
    expected = FileBank([store.folder(store.find(bank_stage(number).key)) for number in (0, 1)]).rows(IDS).numpy()
    for rows in ray.get(there):
        np.testing.assert_array_equal(rows, expected)
    print("held on", *sorted({address for facts in list_banks() for address in facts.nodes}))


if __name__ == "__main__":
    scene, store_root = sys.argv[1:]
    ray.init(log_to_driver=False)
    {"look-up": looks_up_on_every_host}[scene](store_root)
