"""A cluster on this machine that lives as long as somebody works on it."""

from __future__ import annotations

import logging
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from sentdist.environment import environment_with
from sentdist.execution.cluster.address import PRIVATE

_token: dict[str, str] = {}


@contextmanager
def own_cluster(*, cpus: int, gpus: int = 0) -> Iterator[None]:
    """Start Ray without a dashboard and connect to it; end it with the context.

    Nobody else can join it: it has a token that only this process and its own know. Where Ray was loaded before, it has read from the
    environment whether there are tokens, and that holds.
    """
    if "ray" not in sys.modules:
        _token.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    with (
        # Short: paths of sockets may have 107 letters. Workers outlive Ray by a moment, and may write there while it is removed.
        tempfile.TemporaryDirectory(prefix=PRIVATE, dir="/tmp", ignore_cleanup_errors=True) as folder,
        environment_with(_token),
    ):
        import ray

        ray.init(
            address="local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, _temp_dir=folder, logging_level=logging.ERROR,
            log_to_driver=False,
        )  # fmt: skip
        try:
            yield
        finally:
            ray.shutdown()
