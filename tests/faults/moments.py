"""The named moments of a sweep at which a fault is injected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.faults.events import Observed, finished


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What can be seen of a sweep. checkpoints: for each unfinished training (its key) the names of all that were seen so far."""

    events: Sequence[Observed]
    checkpoints: dict[str, frozenset[str]]


Moment = Callable[[Sight], bool]


def _begun(sight: Sight, *kinds: str) -> list[Observed]:
    """The last event of each stage that was begun and is not done."""
    done = finished(sight.events)
    last = {event.stage: event for event in sight.events if event.kind in kinds and event.stage not in done}
    return [event for event in last.values() if event.what in ("started", "step")]


def _training(sight: Sight, fraction: float, label: str = "") -> bool:
    return any(label in event.label and event.step >= fraction * event.num_steps > 0 for event in _begun(sight, "train"))


MOMENTS: dict[str, Moment] = {
    "the sweep has begun": lambda sight: bool(sight.events),
    "a training is at a tenth": lambda sight: _training(sight, 0.1),
    "a training is at two thirds": lambda sight: _training(sight, 0.66),
    "a training has its second checkpoint": lambda sight: any(len(names) >= 2 for names in sight.checkpoints.values()),
    "a bank is made": lambda sight: bool(_begun(sight, "bank")),
    "a bank is done": lambda sight: any(kind == "bank" for kind, _ in finished(sight.events)),
    "RCL trains on its banks": lambda sight: _training(sight, 0.1, "rcl"),
    "scores are made": lambda sight: bool(_begun(sight, "scores")),
}
