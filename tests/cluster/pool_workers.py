"""Workers of pools for tests: in a module that a worker process can import."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Squarer:
    """Takes its time; its process goes away the first time that part 3 is done."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def work(self, part: int) -> int:
        first = self._log / "lost"
        if part == 3 and not first.exists():
            first.touch()
            os._exit(1)
        time.sleep(0.05)
        return part * part


class Deadly:
    """No process survives its parts."""

    def work(self, part: int) -> int:
        os._exit(1)


class Stuck:
    """The first process never comes to the end of its part."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def work(self, part: int) -> int:
        try:
            (self._log / "stuck").touch(exist_ok=False)
        except FileExistsError:
            return part * part
        while True:
            time.sleep(3600.0)
