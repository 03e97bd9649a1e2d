"""How long stages take on each kind of device of a cluster, learned from those that ended."""

from __future__ import annotations

import bisect
import statistics
from collections import defaultdict


class Speeds:
    """Seconds of finished stages by their kind ("train", "bank", …) and the device that built them ("NVIDIA A100-SXM4-40GB", …).

    Medians over all that ended there: stages of one kind differ in size, kinds of devices in speed, and only the latter is asked for.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))  # device -> kind -> sorted

    def note(self, kind: str, device: str, seconds: float) -> None:
        """A stage has ended."""
        bisect.insort(self._seconds[device][kind], seconds)

    def expected_s(self, kind: str, device: str) -> float | None:
        """Seconds that a stage of a kind takes on a device; None: nothing tells.

        Of a kind that never ended there: what it takes elsewhere, times how much longer other kinds take here than there.
        """
        here = self._medians(device)
        if kind in here:
            return here[kind]
        for other in sorted(self._seconds, key=lambda other: -len(self._seconds[other][kind])):
            there = self._medians(other)
            ratios = [here[known] / there[known] for known in here if there.get(known)]
            if kind in there and ratios:
                return there[kind] * statistics.median(ratios)
        return None

    def _medians(self, device: str) -> dict[str, float]:
        return {kind: seconds[len(seconds) // 2] for kind, seconds in self._seconds[device].items() if seconds}
