"""What of a plan is in a store already, and how much work the rest is, by the speed of earlier runs."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sentdist.errors import duration
from sentdist.plan.stage import Stage
from sentdist.plan.stages import STAGES, Bank, Scores, Train
from sentdist.plan.task_kinds import has_known_size
from sentdist.plan.unroll import Plan
from sentdist.store.store import ArtifactStore

MAX_RECORDS = 40  # of each kind: enough for a median, and still quick on an object store
ENCODED_PER_TRAINED = 3.0  # sentences, in the same time: there is no backward pass, which takes twice a forward pass


@dataclass(frozen=True, kw_only=True)
class KindForecast:
    """The stages of one kind: how often trials mention them, how many differ, how many are finished, what is left.

    sentences: to train on or to encode; an upper bound, because early stopping and repeated sentences make it less.
    is_guessed: among them are those of tasks whose size planning does not know.
    sentences_per_s: `likely_speed` by what this store holds; None if it holds nothing to go by.
    """

    kind: str
    mentions: int
    distinct: int
    finished: int
    sentences: int
    is_guessed: bool
    sentences_per_s: float | None

    @property
    def missing(self) -> int:
        return self.distinct - self.finished

    @property
    def seconds(self) -> float | None:
        """Work left, one stage after another."""
        if not self.missing:
            return 0.0
        if self.sentences_per_s is None:
            return None
        return self.sentences / self.sentences_per_s


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A plan held against a store."""

    kinds: tuple[KindForecast, ...]
    finished: frozenset[str]  # keys

    @property
    def saved(self) -> int:
        """Stages that sharing spares: mentioned, but the same as another."""
        return sum(kind.mentions - kind.distinct for kind in self.kinds)

    @property
    def seconds(self) -> float | None:
        """All work left, one stage after another; None if the store knows no speed for some of it."""
        known = [kind.seconds for kind in self.kinds if STAGES[kind.kind].speed_of is not None]
        return None if any(seconds is None for seconds in known) else sum(seconds for seconds in known if seconds is not None)

    @property
    def work_left(self) -> str:
        """A sentence for people."""
        if not any(kind.missing for kind in self.kinds):
            return "Nothing to build."
        if self.seconds is None:
            return "How long that takes is not known yet: this store holds no earlier training or bank to judge by."
        return f"About {duration(max(1.0, self.seconds))} of work, one stage after another, at the speed of earlier runs in this store."


def forecast(plan: Plan, store: ArtifactStore) -> Forecast:
    """Look which stages are finished and estimate the rest; reads records only, no data.

    Raises:
        StoreError: the store cannot be read.
    """
    finished = frozenset(store.get_all(plan.stages))
    kinds = []
    for kind in STAGES.values():
        stages = [stage for stage in plan.stages if isinstance(stage, kind)]
        if not stages:
            continue
        left = [stage for stage in stages if stage.key not in finished]
        kinds.append(
            KindForecast(
                kind=kind.kind,
                mentions=sum(plan.mentions[stage.key] for stage in stages),
                distinct=len(stages),
                finished=len(stages) - len(left),
                sentences=sum(stage.num_sentences(plan.rows) for stage in left),
                is_guessed=any(
                    isinstance(stage, Scores) and not all(has_known_size(task, plan.rows) for task in stage.tasks) for stage in left
                ),
                sentences_per_s=likely_speed(kind, partial(speed_of, store)) if left else None,
            )
        )
    return Forecast(kinds=tuple(kinds), finished=finished)


def likely_speed(kind: type[Stage], speed: Callable[[type[Stage]], float | None]) -> float | None:
    """Sentences a second of a kind, as `speed` knows it; of what encodes else `ENCODED_PER_TRAINED` times those of trainings."""
    if (known := speed(kind)) is not None or kind.speed_of != Bank.kind:
        return known
    training = speed(Train)
    return None if training is None else ENCODED_PER_TRAINED * training


def speed_of(store: ArtifactStore, kind: type[Stage]) -> float | None:
    """Median sentences a second of the finished stages that a kind is forecast by; None if there are none."""
    if kind.speed_of is None:
        return None
    artifacts = itertools.islice(store.artifacts(kind.speed_of), MAX_RECORDS)
    rates = [rate for artifact in artifacts if (rate := artifact.record.number("sentences_per_s")) is not None and rate > 0]
    return statistics.median(rates) if rates else None


def seconds_beside_steps(store: ArtifactStore) -> float | None:
    """Median seconds that finished trainings took beside their steps: to load, to score on dev, to write. None if there are none."""
    artifacts = itertools.islice(store.artifacts(Train.kind), MAX_RECORDS)
    found = []
    for record in (artifact.record for artifact in artifacts):
        steps = [seconds for name in record.results if name.startswith("seconds.") and (seconds := record.number(name)) is not None]
        if steps:  # of one that was resumed, since then
            found.append(max(0.0, record.seconds - (record.number("seconds_before") or 0.0) - sum(steps)))
    return statistics.median(found) if found else None
