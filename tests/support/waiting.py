"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], *, what: str, seconds: float = 60.0) -> None:
    """Ask again until it holds.

    Raises:
        TimeoutError: it does not hold after so many seconds; says what was waited for.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)
