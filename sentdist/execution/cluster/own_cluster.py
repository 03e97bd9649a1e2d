"""A cluster on this machine that lives as long as somebody works on it."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sentdist.environment import environment_with
from sentdist.execution.cluster.address import PRIVATE
from sentdist.store.scratch import maker_of, scratch_name

PLACE = "/tmp"  # short: paths of sockets may have 107 letters
_token: dict[str, str] = {}


@contextmanager
def own_cluster(*, cpus: int, gpus: int = 0) -> Iterator[None]:
    """Start Ray without a dashboard and connect to it; end it with the context. What killed processes left of theirs goes first.

    Nobody else can join it: it has a token that only this process and its own know. Where Ray was loaded before, it has read from the
    environment whether there are tokens, and that holds.
    """
    if "ray" not in sys.modules:
        _token.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    _remove_left(Path(PLACE))
    with (
        # Workers outlive Ray by a moment, and may write there while it is removed.
        tempfile.TemporaryDirectory(prefix=PRIVATE, dir=PLACE, ignore_cleanup_errors=True) as folder,
        environment_with(_token),
    ):
        (Path(folder) / scratch_name("cluster")).touch()
        import ray

        ray.init(
            address="local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, _temp_dir=folder, logging_level=logging.ERROR,
            log_to_driver=False,
        )  # fmt: skip
        try:
            yield
        finally:
            ray.shutdown()


def _remove_left(parent: Path) -> None:
    """Remove the user's folders whose process is dead, by the name of a file in them: its own name must be short."""
    for folder in parent.glob(f"{PRIVATE}*"):
        with suppress(OSError):
            is_own = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
            if is_own and any(maker_of(path.name) == "dead" for path in folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)
