"""What a driver's lines say: which stage started, how far a training is, what is finished."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sentdist.run.events import What

_LINE = re.compile(
    r"^\d\d:\d\d:\d\d  \[ *\d+/\d+\]  "
    r"(?P<kind>\w+) +(?P<label>\S.*?)  (?P<reported>started|goes on|step (?P<step>\d+)/(?P<num_steps>\d+)|done in|FAILED)"
)
SAME_NEWS_S = 5.0  # within which two drivers get reports of one event
UNDER_WAY_S = 0.5  # of an event, from where it happens to here
_WHAT: dict[str, What] = {"started": "started", "goes on": "started", "done in": "finished", "FAILED": "failed"}


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One event of one stage as a driver reported it. at: seconds on this machine's monotonic clock; driver: its number in the round."""

    at: float
    driver: int
    kind: str
    label: str
    what: What
    step: int = 0
    num_steps: int = 0

    @property
    def stage(self) -> tuple[str, str]:
        """Kind and label; one seed has each only once."""
        return self.kind, self.label


def observed(line: str, *, at: float, driver: int) -> Observed | None:
    """The event in a line (`SweepProgress.line`); None if it tells of no stage."""
    found = _LINE.match(line)
    if found is None:
        return None
    step, num_steps = int(found["step"] or 0), int(found["num_steps"] or 0)
    return Observed(
        at=at,
        driver=driver,
        kind=found["kind"],
        label=found["label"],
        what=_WHAT.get(found["reported"], "step"),
        step=step,
        num_steps=num_steps,
    )


def finished(events: Iterable[Observed]) -> set[tuple[str, str]]:
    """The stages that are reported to be done."""
    return {event.stage for event in events if event.what == "finished"}


def built_twice(events: Iterable[Observed]) -> list[tuple[str, str]]:
    """The stages that were reported to be done more than once.

    Two drivers at the same time get reports of the same building within a moment, so that is reported once.
    """
    reported: dict[tuple[str, str], list[Observed]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.at):
        if event.what == "finished" and not any(_is_same_news(event, earlier) for earlier in reported[event.stage]):
            reported[event.stage].append(event)
    return sorted(stage for stage, times in reported.items() if len(times) > 1)


def _is_same_news(event: Observed, earlier: Observed) -> bool:
    return event.driver != earlier.driver and event.at - earlier.at < SAME_NEWS_S


def recovery_s(events: Iterable[Observed], injected_at: float) -> float | None:
    """Seconds from an injection until all stages that were being made then have come further than they were: a step beyond the one reached,
    or the end; if none was being made, until the next stage has. None if nothing was left to do."""
    reached: dict[tuple[str, str], int] = {}
    done: set[tuple[str, str]] = set()
    waits_for: dict[tuple[str, str], int] | None = None
    last = None
    for event in sorted(events, key=lambda event: event.at):
        if waits_for is None and event.at > injected_at + UNDER_WAY_S:
            waits_for = {stage: step for stage, step in reached.items() if stage not in done}
        if waits_for is not None:
            is_further = event.what == "finished" or (event.what == "step" and event.step > waits_for.get(event.stage, 0))
            if is_further and (event.stage in waits_for or (last is None and not waits_for)):
                waits_for.pop(event.stage, None)
                last = event.at
            if last is not None and not waits_for:
                break
        reached[event.stage] = max(event.step, reached.get(event.stage, 0))
        done |= {event.stage} if event.what == "finished" else set()
    return None if last is None else last - injected_at
