"""A cluster on this machine that lives as long as somebody measures something on it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import ray


@contextmanager
def own_cluster(*, num_cpus: int) -> Iterator[None]:
    """Start Ray without GPUs and a dashboard and connect to it; end it with the context."""
    with tempfile.TemporaryDirectory(prefix="sd-ray-", dir="/tmp") as folder:  # short: paths of sockets may have 107 letters
        ray.init(num_cpus=num_cpus, num_gpus=0, include_dashboard=False, _temp_dir=folder, logging_level=logging.ERROR, log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()
