"""An event loop whose clock jumps to the next thing that is to happen: hours of waiting take no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class _Selector(selectors.SelectSelector):
    """Waits for nothing: the time that a loop would wait has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        assert found or timeout is not None, "everything waits for something that nothing will do"
        if not found and timeout:
            self.now_s += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s


def run_in_virtual_time(scene: Coroutine[Any, Any, Answer]) -> Answer:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scene)
