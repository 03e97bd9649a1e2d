"""Run as a program: a training by DeepSpeed on two GPUs that Ray counts and torch cannot use; prints what the sweep says."""

from __future__ import annotations

import sys
from pathlib import Path

import ray

from sentdist.execution.sweep import run_sweep
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def main(folder: str, encoder: str) -> None:
    ray.init(
        num_cpus=4, num_gpus=2, include_dashboard=False, _temp_dir=folder, object_store_memory=80 * 2**20, logging_level="ERROR",
        log_to_driver=False,
    )  # fmt: skip
    values = tiny_values(Path(encoder), runtime={"device": "cuda", "workers": 2})
    methods = values["methods"]
    assert isinstance(methods, dict)
    plan, context = tiny_plan(
        values | {"methods": {"fine_tuned": methods["fine_tuned"]}}, data=write_data(Path(folder) / "data"), store=Path(folder) / "store"
    )
    run_sweep(plan, context)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
