"""What Ray itself says on a driver's console: left out where the board says it better, else cut to a line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import ray._private.worker as ray_worker

from sentdist.errors import one_line

LONGEST_LINE = 240  # letters

# A lost host or process, with the last lines of the raylet's own log, also of hosts that were lost before this driver began: `Watchdog` and
# `Attempts` say which host, what ran on it and how it goes on.
SAID_BY_THE_BOARD = (
    "Raylet is terminated",
    "has been marked dead",
    "A worker died or was killed while executing a task",
    "The actor died",
)


# A host of two CPUs has a process for each of ours that waits for work and holds no CPU: nobody need do anything about that.
MEANT_SO = ("worker processes have been started on node",)


def console_line(message: str) -> str | None:
    """What people see of a message of Ray's; None: nothing."""
    if any(words in message for words in (*SAID_BY_THE_BOARD, *MEANT_SO)):
        return None
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"Ray: {one_line(lines[0], LONGEST_LINE)}" if lines else None


def shorten_messages() -> None:
    """Have this driver print Ray's messages so. (`log_to_driver=False` keeps out what workers print, not what Ray publishes as errors.)"""
    ray_worker.print_to_stdstream = _print


def _print(data: Mapping[str, Any], ignore_prefix: bool) -> None:
    for message in data["lines"]:
        line = console_line(str(message))
        if line is not None:
            print(line, file=sys.stderr, flush=True)
