"""What an actor does beside its calls, in its event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Tasks that nobody waits for. What one of them raises goes to the log of the process at once."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references to its tasks

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended with an error", task.get_coro(), exc_info=error)
