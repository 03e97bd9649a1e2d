"""Run as a program: stages on a cluster of two GPUs that Ray only believes in; prints which process was given which of them."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import ray

from sentdist.execution.board.stage_task import start
from sentdist.execution.resources import Demand


def where_it_runs(stage: Any, submission: Any, sink: Any) -> Any:
    """In place of a stage's body."""
    import time

    time.sleep(0.3)  # so that two run at once
    return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


def main(folder: str) -> None:
    ray.init(
        num_cpus=2, num_gpus=2, include_dashboard=False, _temp_dir=folder, object_store_memory=80 * 2**20,
        logging_level="ERROR", log_to_driver=False,
    )  # fmt: skip
    found: dict[str, list[Any]] = {"gpu": [], "cpu": []}
    for kind in ("cpu", "gpu", "gpu"):
        demand = Demand(way="task", workers=1, num_cpus=0.5, num_gpus=float(kind == "gpu"))
        stage: Any = SimpleNamespace(kind="embed", label=kind)
        nothing: Any = None
        found[kind] += ray.get([start(where_it_runs, stage, nothing, demand, nothing) for _ in range(2)])
    print(json.dumps(found))
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
