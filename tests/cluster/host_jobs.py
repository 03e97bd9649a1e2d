"""Jobs for a cluster of several hosts: `python -m tests.cluster.host_jobs JOB STORE NUM_HOSTS`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sentdist.learning.bank import FileBank
from sentdist.recipe.stage import Json
from sentdist.recipe.unroll import Plan
from sentdist.run.bank_owner import list_banks
from sentdist.run.bank_reader import open_bank
from sentdist.run.connection import connect
from sentdist.run.events import StageEvent
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.cluster.artificial_banks import bank_stage
from tests.support.waiting import wait_for

IDS = np.arange(0, 900, 7)
# Weights that hardly move: then the loss of a step tells the batch that it was computed from, and nothing else.
CHANGING: tuple[dict[str, Json], dict[str, Json]] = (
    {"epochs": 1000, "learning_rate": 1e-9},
    {"workers": [1, 2], "checkpoint_every_s": 3, "max_failures": 1},
)


@ray.remote(num_cpus=1)
def _look_up(root: str) -> np.ndarray:
    return open_bank((bank_stage(0), bank_stage(1)), Context(store=ArtifactStore(root))).rows(IDS).numpy()


def looks_up_on_every_host(root: str) -> None:
    """The rows of a bank, asked for on each node, equal those of its files; prints the addresses of the nodes that hold it."""
    store = ArtifactStore(root)
    on_each = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in _living()]
    there = [_look_up.options(scheduling_strategy=on_one).remote(root) for on_one in on_each]
    expected = FileBank([store.folder(store.find(bank_stage(number).key)) for number in (0, 1)]).rows(IDS).numpy()
    for rows in ray.get(there):
        np.testing.assert_array_equal(rows, expected)
    print("held on", *sorted({address for facts in list_banks() for address in facts.nodes}))


def loses_a_host(root: str) -> None:
    """A training with a worker on each host, until it goes on from a checkpoint; writes down every line that people would read."""
    plan, context = planned(root, {"epochs": 1000}, {"workers": 2, "checkpoint_every_s": 3600, "max_failures": 1})
    _follow(plan, context, is_over=lambda event: event.what == "resumed")


def changes_hosts(root: str) -> None:
    """A training with as many workers as there are hosts, to its end; writes down every line that people would read."""
    plan, context = planned(root, *CHANGING)
    _follow(plan, context, is_over=lambda event: False)


def planned(root: str, training: dict[str, Json], runtime: dict[str, Json]) -> tuple[Plan, Context]:
    """One long training of the encoder and the data that lie beside the store."""
    from tests.support.tiny_data import tiny_plan, tiny_values

    place = Path(root).parent
    objective: Json = {"name": "info_nce", "temperature": 0.05}
    undropped: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}  # what is dropped depends on the number of workers
    long: Json = {"objective": objective, "regularizers": undropped, "select": False, "training": cast(Json, training)}
    values = tiny_values(place / "encoder", methods={"long": long}, baseline=None)
    values["runtime"] = {"engine": "torch"} | runtime
    return tiny_plan(values, data=place / "data", store=root)


def _follow(plan: Plan, context: Context, *, is_over: Callable[[StageEvent], bool]) -> None:
    from sentdist.run.client import BoardClient
    from sentdist.run.orders import build_stage
    from sentdist.run.submissions import Submission

    board = BoardClient(Submission(context=context, sweep="long"), build_stage)
    with (Path(context.store.root).parent / "lines").open("w") as lines:
        for event in board.follow(plan.trials[0].scores.encoder):
            print(event.line, file=lines, flush=True)
            if is_over(event):
                break
    board.leave()


def _living() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


if __name__ == "__main__":
    job, store_root, num_hosts = sys.argv[1:]
    connect()
    wait_for(lambda: len(_living()) == int(num_hosts), what=f"{num_hosts} living nodes", seconds=120)  # one that is cut off: about 15 s
    {"look-up": looks_up_on_every_host, "lose-a-host": loses_a_host, "change-hosts": changes_hosts}[job](store_root)
