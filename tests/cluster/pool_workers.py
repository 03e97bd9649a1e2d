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
