"""A semaphore whose number of places may change while some wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ResizableSemaphore:
    """A context that holds one place, and waits for it while all are taken. number: of places now; after a change call `recheck`."""

    def __init__(self, number: Callable[[], int]) -> None:
        self._number = number
        self._taken = 0
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order in which they came

    async def __aenter__(self) -> None:
        while self._taken >= self._number():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[turn] = None
            try:
                await turn
            finally:
                del self._waiting[turn]
        self._taken += 1

    async def __aexit__(self, *_: object) -> None:
        self._taken -= 1
        self.recheck()

    def recheck(self) -> None:
        """Let those who wait see whether there is a place now."""
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
