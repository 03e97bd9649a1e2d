"""What a trial costs: beforehand by forecast, given what the store holds, and afterwards by what was built for it."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterable, Set
from dataclasses import dataclass

from sentdist.plan.stage import Stage, topological
from sentdist.plan.stages import STAGES, Rung, Train
from sentdist.plan.suggestions import PlannedSearch
from sentdist.store.forecast import likely_speed, seconds_beside_steps, speed_of
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Seconds of work and sentences trained on, and the keys of the stages that they went into."""

    seconds: float = 0.0
    sentences: int = 0
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoreBefore:
    """What a store held before a search. If the search was submitted before, what is younger than `since` was built for it.
    Clocks of hosts differ, so nothing else is asked of them.

    places: of stages, when this submission began. since: when the search began, by the driver's clock; None: with this submission.
    """

    places: frozenset[str]
    since: float | None

    @classmethod
    def read(cls, store: ArtifactStore, *, since: float | None) -> StoreBefore:
        """List what the store has now. StoreError where it cannot be read."""
        return cls(places=frozenset(f"{kind}/{name}" for kind in STAGES for name in store.files.folder_names(kind)), since=since)

    def had(self, record: Record) -> bool:
        """Whether the store had it before, so that nobody pays for it."""
        return record.place in self.places and (self.since is None or _created(record) < int(self.since))


def spent_on(stage: Train | Rung, store: ArtifactStore, *, earlier: StoreBefore, known: Set[str]) -> Spending:
    """What was built in a search for a training until a share; known: keys of stages that others have paid for."""
    found = Spending()
    asked = [needed for needed in topological((stage,)) if needed.key not in known and needed.purpose != "scores"]
    artifacts = store.get_all(asked)
    for needed in asked:
        artifact = artifacts.get(needed.key)
        if artifact is None or earlier.had(artifact.record):
            continue
        record = artifact.record
        seconds = record.seconds - ((record.number("seconds_before") or 0.0) if isinstance(needed, Train) else 0.0)
        sentences = 0
        if isinstance(needed, Train | Rung):
            train = needed.whole
            step = int(record.number("step" if isinstance(needed, Rung) else "num_steps") or 0)
            sentences = step * train.sentences_per_step - int(record.number("sentences_before") or 0)
        found = Spending(
            seconds=round(found.seconds + max(0.0, seconds), 3),
            sentences=found.sentences + max(0, sentences),
            stages=(*found.stages, needed.key),
        )
    return found


class Forecasts:
    """What trainings would take, given what the store holds, at the speed of earlier ones.

    Speeds are looked up once. One that is not known yet is looked up again after `something_was_built`: in a bucket that is a request for
    each kind, and what is left of a budget is asked for at each step.
    """

    def __init__(self, planned: PlannedSearch, store: ArtifactStore) -> None:
        self._rows = planned.rows
        self._store = store
        self._speeds: dict[str, float | None] = {}
        self._beside: float | None = None  # looked up once a speed is known, which finished trainings give

    def seconds(self, train: Train) -> float | None:
        """Seconds for what the store lacks of a whole training, one stage after another; None while no speed is known."""
        return self.whole_seconds(stage for stage in self._missing(train) if stage.purpose == "training")

    def sentences(self, train: Train) -> int:
        """The sentences that it and the entropy encoders that the store lacks would train on, at most."""
        return sum(stage.num_sentences(self._rows) for stage in self._missing(train) if isinstance(stage, Train))

    def whole_sentences(self, stage: Stage) -> int:
        """Sentences that a stage itself trains on, or encodes."""
        return stage.num_sentences(self._rows)

    def whole_seconds(self, stages: Iterable[Stage]) -> float | None:
        """Seconds for stages, one after another, whatever the store holds of them; None while no speed is known. Each counts what a
        training takes beside its steps, which of few rows is most of it."""
        total = 0.0
        for stage in stages:
            if stage.speed_of is None or not (sentences := stage.num_sentences(self._rows)):
                continue
            speed = likely_speed(type(stage), self._speed)
            if speed is None:
                return None
            total += sentences / speed + self._beside_steps
        return total

    @property
    def _beside_steps(self) -> float:
        if self._beside is None:
            self._beside = seconds_beside_steps(self._store) or 0.0
        return self._beside

    def _missing(self, train: Train) -> list[Stage]:
        stages = topological((train,))
        finished = self._store.get_all(stages)
        return [stage for stage in stages if stage.key not in finished]

    def _speed(self, kind: type[Stage]) -> float | None:
        assert kind.speed_of is not None
        if kind.speed_of not in self._speeds:
            self._speeds[kind.speed_of] = speed_of(self._store, kind)
        return self._speeds[kind.speed_of]

    def look_again(self) -> None:
        """Judge by all that was built until now: the first training of a process is slower than others."""
        self._speeds, self._beside = {}, None

    def something_was_built(self) -> None:
        """Look again for speeds that were not known."""
        self._speeds = {kind: speed for kind, speed in self._speeds.items() if speed is not None}


def _created(record: Record) -> float:
    """When a stage was finished, in seconds of the clock."""
    return float(calendar.timegm(time.strptime(record.created_at, "%Y-%m-%dT%H:%M:%SZ")))
