"""How fast this machine is just now, so that a bound on processor seconds says the same on every machine."""

from __future__ import annotations

import time

# Of `_work` at its fastest on the AMD EPYC (2.6 GHz) that the bounds were written on; 0.012 there in slow minutes.
REFERENCE_SECONDS = 0.007


def slower_than_reference() -> float:
    """The factor that a bound is multiplied with: 1 on the machine it was written on and on faster ones; the best of five tries."""
    return max(1.0, min(_work() for _ in range(5)) / REFERENCE_SECONDS)


def _work() -> float:
    started = time.process_time()
    seen: dict[int, str] = {}
    for number in range(60_000):
        seen[number * 7919 % 10_007] = str(number)
    assert len(seen) == 10_007
    return time.process_time() - started
