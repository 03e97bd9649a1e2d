"""One Ray cluster of two CPUs for all cluster tests, with a temporary directory of its own, ended by its handle."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of the cluster; this process is connected to it as a driver."""
    os.environ.update(RAY_AUTH_MODE="disabled", PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
    import ray

    folder = tempfile.mkdtemp(prefix="sd-ray-", dir="/tmp")  # short: paths of sockets may have 107 letters
    ray.init(
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        _temp_dir=folder,
        object_store_memory=300 * 2**20,
        logging_level="ERROR",
        log_to_driver=False,
    )
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
