"""Check a search's budget, count what it has spent, forecast trials, and choose the seeds of finalists that fit."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import cached_property

from sentdist.errors import RecipeError, counted, duration
from sentdist.recipe.search import Budget
from sentdist.recipe.stage import Stage, longest_path, topological
from sentdist.recipe.stages import STAGES, Rung, Train
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.store.garbage import likely_speed, seconds_beside_steps, speed_of
from sentdist.store.record import Record
from sentdist.store.searches import FinalistsChosen
from sentdist.store.store import ArtifactStore


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Seconds of work, sentences trained on, and keys of the stages that they were spent on."""

    seconds: float = 0.0
    sentences: int = 0
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoreBefore:
    """Stages in a store before a search. since: when an earlier submission began it, by the driver's clock; None for this submission.
    Younger stages were built for the search. Hosts' clocks differ, so they are used for nothing else."""

    places: frozenset[str]  # places of the stages when this submission began
    since: float | None

    @classmethod
    def read(cls, store: ArtifactStore, *, since: float | None) -> StoreBefore:
        """List the stages of the store.

        Raises:
            StoreError: the store cannot be read.
        """
        return cls(places=frozenset(f"{kind}/{name}" for kind in STAGES for name in store.files.folder_names(kind)), since=since)

    def had(self, record: Record) -> bool:
        """Return True if the store had it before the search, which then does not pay for it."""
        return record.place in self.places and (self.since is None or _created(record) < int(self.since))


def spent_on(stage: Train | Rung, store: ArtifactStore, *, earlier: StoreBefore, known: Set[str]) -> Spending:
    """Return what a search spent on a training until a share. known: keys of stages that other trials have paid for."""
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
    """Forecasts of trainings at the speed of earlier ones, without stages in the store.

    Speeds are looked up once, unknown ones again after `something_was_built`: a look-up in a bucket is a request for each kind, and the
    rest of a budget is computed at each step.
    """

    def __init__(self, planned: PlannedSearch, store: ArtifactStore) -> None:
        self._rows = planned.rows
        self._store = store
        self._speeds: dict[str, float | None] = {}
        self._beside: float | None = None  # looked up once a speed is known, which finished trainings give

    def seconds(self, train: Train) -> float | None:
        """Return the seconds of a whole training and its inputs that the store lacks, one after another; None while no speed is known."""
        return self.whole_seconds(stage for stage in self._missing(train) if stage.purpose == "training")

    def sentences(self, train: Train) -> int:
        """Return the most sentences that it and the entropy encoders that the store lacks would train on."""
        return sum(stage.num_sentences(self._rows) for stage in self._missing(train) if isinstance(stage, Train))

    def whole_sentences(self, stage: Stage) -> int:
        """Return the sentences that a stage trains on or encodes."""
        return stage.num_sentences(self._rows)

    def whole_seconds(self, stages: Iterable[Stage]) -> float | None:
        """Return the seconds of stages, one after another, as if none were in the store; None while no speed is known.

        Each includes the time of a training besides its steps, which is most of it with few rows.
        """
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
        """Look up all speeds again: the first training of a process is slower than others."""
        self._speeds, self._beside = {}, None

    def something_was_built(self) -> None:
        """Look up unknown speeds again."""
        self._speeds = {kind: speed for kind, speed in self._speeds.items() if speed is not None}


def _created(record: Record) -> float:
    """When a stage was finished, in seconds since 1970."""
    return float(calendar.timegm(time.strptime(record.created_at, "%Y-%m-%dT%H:%M:%SZ")))


MOST_KEPT = 0.5  # of the hours of a budget: largest part kept for the finalists while trials run
FIRST_ROOM = 2.0  # times the forecast of a trial: left for the first trial, before a part is kept for finalists
FIRST_MORE = 0.5  # of the hours of a budget: additional time for the first trial once it has reached a rung


def check_budget(
    planned: PlannedSearch, forecasts: Forecasts, *, remedy: str = "Raise the budget, or train on less: nothing was started."
) -> bool:
    """Check that one trial of each method fits in the budget; return False if it is in hours and no speed is known yet.

    Raises:
        RecipeError: it does not fit; with what one trial takes.
    """
    budget, is_known = planned.search.budget, True
    if budget is None:
        return True
    for method in planned.methods:
        train = planned.train(method, planned.first(method))
        needed, seconds = forecasts.sentences(train), forecasts.seconds(train)
        is_known = is_known and (seconds is not None or budget.hours is None)
        if budget.sentences is not None and needed > budget.sentences:
            raise RecipeError(
                where=f"{planned.recipe.name}: search.budget.sentences",
                found=f"{budget.sentences:,}, where one trial of {method} trains on {needed:,}",
                expected="room for a trial of each method", remedy=remedy,
            )  # fmt: skip
        if budget.hours is not None and seconds is not None and seconds > 3600 * budget.hours:
            raise RecipeError(
                where=f"{planned.recipe.name}: search.budget.hours",
                found=f"{budget.hours:g}, where one trial of {method} takes about {seconds / 3600:.2g} "
                f"({duration(seconds)} at the speed of earlier runs)",
                expected="time for a trial of each method", remedy=remedy,
            )  # fmt: skip
    return is_known


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since 1970 that does not jump when the system's clock is set or the machine sleeps."""
    moment = time.time() - time.monotonic()
    return lambda: moment + time.monotonic()


class Hours:
    """The hours of a budget over all submissions of a search. before: hours of earlier ones. since: start of this one, by the clock."""

    def __init__(self, budget: Budget | None, clock: Callable[[], float]) -> None:
        self._budget = None if budget is None else budget.hours
        self._clock = clock
        self.before, self.since = 0.0, clock()

    @property
    def left(self) -> float | None:
        """Hours until the budget's end; None without a budget of hours."""
        return None if self._budget is None else max(0.0, self._budget - self.spent)

    @property
    def left_of_more(self) -> float:
        """Hours until the end of the additional time for the first trial."""
        return max(0.0, (1 + FIRST_MORE) * (self._budget or 0.0) - self.spent)

    @property
    def over_s(self) -> float:
        """Seconds since the budget's end; 0 before."""
        return 0.0 if self._budget is None else max(0.0, 3600 * (self.spent - self._budget))

    @property
    def spent(self) -> float:
        """Hours spent over all submissions."""
        return self.before + (self._clock() - self.since) / 3600

    @property
    def line(self) -> str:
        """Reason for the end of a search whose hours are spent; "" without a budget of hours."""
        return "" if self._budget is None else f"the budget of {duration(3600 * self._budget)} is spent"


@dataclass(frozen=True, kw_only=True)
class FinalistsPrice:
    """Cost of the trainings after the choice on dev."""

    trainings: int  # number beyond those of the search
    sentences: int
    seconds: tuple[float, ...] | None  # with 1, 2, … of the recipe's seeds; None while no speed is known

    @property
    def line(self) -> str:
        """The price as a phrase."""
        took = "no speed is known yet" if self.seconds is None else f"about {duration(self.seconds[-1])}, scores included"
        return f"{counted(self.trainings, 'training')} more, {self.sentences:,} sentences, {took}"


class Finalists:
    """Cost of a search's finalists, and the part of a budget of hours kept for them.

    It depends on the recipe and one known speed, not on the store: submitted again, a search has no more time than before.

    Args:
        at_once: stages that run at the same time.
    """

    def __init__(self, planned: PlannedSearch, forecasts: Forecasts, *, at_once: int = 1) -> None:
        self._planned, self._forecasts, self._at_once = planned, forecasts, at_once
        self._known: FinalistsPrice | None = None

    @property
    def price(self) -> FinalistsPrice:
        """Cost, computed with the first suggestion of each method in place of the finalists."""
        if self._known is not None:
            return self._known
        whole_seconds = self._forecasts.whole_seconds
        seconds = [whole_seconds(stages) for stages in self._stages]
        longest = max((longest_path(stages, lambda stage: whole_seconds([stage]) or 0.0) for stages in self._stages), default=0.0)
        last = [stage for stage in self._stages[-1] if stage.kind == "train"]
        times = self._planned.search.finalists
        price = FinalistsPrice(
            trainings=times * len(last),
            sentences=times * sum(self._forecasts.whole_sentences(stage) for stage in last),
            seconds=None if None in seconds else tuple(max(times * one / self._at_once, longest) for one in seconds if one is not None),
        )
        self._known = None if price.seconds is None else price
        return price

    def hours(self, *, after_first: bool) -> float:
        """Return the hours kept for finalists while trials run; 0 while no speed is known, less before a first trial has finished."""
        budget, seconds = self._planned.search.budget, self.price.seconds
        if budget is None or budget.hours is None or seconds is None:
            return 0.0
        room = 0.0 if after_first else FIRST_ROOM * (self._trial_s or 0.0) / 3600
        return min(seconds[-1] / 3600, MOST_KEPT * budget.hours, max(0.0, budget.hours - room))

    def seeds(self, hours_left: float | None, *, chosen: FinalistsChosen | None = None) -> tuple[int, ...]:
        """Return the recipe's seeds that fit at the measured speeds; always the first one, and those chosen earlier."""
        self._forecasts.look_again()
        self._known = None
        seeds, seconds = self._planned.recipe.seeds, self.price.seconds
        if hours_left is None or seconds is None:
            return tuple(seeds)
        fitting = seeds[: max(1, sum(one <= 3600 * hours_left for one in seconds))]
        earlier = {seed for finalist in (chosen.finalists if chosen else ()) for seed in finalist.cells}
        return tuple(seed for seed in seeds if seed in fitting or seed in earlier)

    @property
    def _trial_s(self) -> float | None:
        """Seconds of a trial of the slowest method with all that it needs."""
        found = [self._forecasts.whole_seconds(stages) for stages in self._of_trials]
        return max((seconds for seconds in found if seconds is not None), default=None)

    @cached_property
    def _of_trials(self) -> list[list[Stage]]:
        trains = [self._planned.train(method, self._planned.first(method)) for method in self._planned.methods]
        return [[stage for stage in topological((train,)) if stage.purpose == "training"] for train in trains]

    @cached_property
    def _stages(self) -> list[list[Stage]]:
        """The stages that the search itself does not build: for 1 seed, for 2 seeds, …"""
        planned = self._planned
        chosen = [(method, planned.first(method)) for method in planned.methods]
        there = {stage.key for method, first in chosen for stage in topological((planned.train(method, first),))}
        plans = [planned.plan(chosen, seeds=planned.recipe.seeds[:num]) for num in range(1, len(planned.recipe.seeds) + 1)]
        return [[stage for stage in plan.stages if stage.key not in there] for plan in plans]
