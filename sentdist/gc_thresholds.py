"""How often a process of this project looks for objects that only hold one another, and among which."""

from __future__ import annotations

import atexit
import gc
import sys

YOUNG, MIDDLE, FULL = 50_000, 20, 100  # new objects, and how many of the smaller collections, until the next


def collect_rarely() -> None:
    """Have Python collect garbage less often in this process, unless it does so already.

    Libraries make a million objects while they are imported, and Python walks through all of them again and again:
    1.5 to 1.9 of the 8 seconds that a worker imports for. Training leaves nothing that only a cycle holds
    (none after 25 steps), so nothing waits for it. When the process ends, what is left goes with it: looking for it took most of a second.
    Commands and workers call this first; a person's own Python is left as it is.
    """
    if 0 < gc.get_threshold()[0] < YOUNG:
        gc.set_threshold(YOUNG, MIDDLE, FULL)
        atexit.register(gc.freeze)


def pass_over_libraries(known: int) -> int:
    """Take what lives in this process now out of the collector's sight if libraries came since it had `known` modules; how many it has now.

    For between two pieces of work, when nothing of the last one is held: what is left are libraries, half a million objects (MiniLM's
    training by plain torch; DeepSpeed brings 120,000 more), of which none ever goes. Each collection walks through all that it sees.
    """
    if len(sys.modules) > known:
        gc.freeze()
    return len(sys.modules)
