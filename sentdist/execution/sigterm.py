"""How a process ends on SIGTERM: in order, after it has stopped what it began."""

from __future__ import annotations

import signal
import threading
from types import FrameType

_received: int | None = None


def end_on_sigterm() -> None:
    """From now on SIGTERM raises SystemExit. `ray job stop` sends it and kills 3 s later: leave the board in that time, so that work
    nobody waits for ends, too."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)


def with_signal_code(ending: SystemExit) -> SystemExit:
    """How this process ends: where a signal has ended it, with the signal's exit code. Ray raises its own SystemExit, a sentence, in place
    of one that reaches its waiting calls."""
    return ending if _received is None else SystemExit(128 + _received)


def _stop(number: int, frame: FrameType | None) -> None:
    global _received
    _received = number
    raise SystemExit(128 + number)
