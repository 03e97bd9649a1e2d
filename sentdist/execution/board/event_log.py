"""The last events of a board, numbered, for those who follow them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from sentdist.execution.board.events import StageEvent

KEPT_EVENTS = 2000


class EventLog:
    """Whoever has read up to a number is woken by the next event."""

    def __init__(self) -> None:
        self._kept: deque[StageEvent] = deque(maxlen=KEPT_EVENTS)
        self._news = asyncio.Condition()
        self.last_number = 0  # the number of the last event

    async def add(self, event: StageEvent) -> None:
        """Keep an event and wake those who wait."""
        async with self._news:
            self._kept.append(event)
            self.last_number += 1
            self._news.notify_all()

    async def wake(self) -> None:
        """Have those who wait look again whether they still want to."""
        async with self._news:
            self._news.notify_all()

    async def after(self, since: int | None, *, is_over: Callable[[], bool]) -> tuple[list[StageEvent], int]:
        """The events after number `since` (None: from now on) and the number of the last one; waits until there is one, or it is over."""
        since = self.last_number if since is None else since
        async with self._news:
            await self._news.wait_for(lambda: self.last_number > since or is_over())
            num_new = min(self.last_number - since, len(self._kept))
            return list(self._kept)[len(self._kept) - num_new :], self.last_number
