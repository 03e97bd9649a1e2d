"""What a search's budget has room for: one trial at least, and the finalists with as many seeds as fit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from sentdist.errors import RecipeError, counted, duration
from sentdist.execution.searching.prices import Forecasts
from sentdist.plan.search import Budget
from sentdist.plan.stage import Stage, longest_path, topological
from sentdist.plan.suggestions import PlannedSearch
from sentdist.store.searches import FinalistsChosen

MOST_KEPT = 0.5  # of the hours of a budget: that the finalists may be waited for while trials run
FIRST_ROOM = 2.0  # times what a trial takes by forecast: that is left for the first to come to its end, before anything is kept
FIRST_MORE = 0.5  # of the hours of a budget: for the first trial beyond them, once it has reached a rung


def check_budget(
    planned: PlannedSearch, forecasts: Forecasts, *, remedy: str = "Raise the budget, or train on less: nothing was started."
) -> bool:
    """Refuse a budget in which no trial comes to its end; whether a speed is known to judge by, where it is one of hours.

    Raises:
        RecipeError: with what one trial takes.
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
    """A clock of seconds since 1970 that does not jump, from now on, when the system's clock is set or the machine sleeps."""
    moment = time.time() - time.monotonic()
    return lambda: moment + time.monotonic()


class Hours:
    """The hours of a budget, over all submissions of a search. before: spent by earlier ones. since: when this one began, by the clock."""

    def __init__(self, budget: Budget | None, clock: Callable[[], float]) -> None:
        self._budget = None if budget is None else budget.hours
        self._clock = clock
        self.before, self.since = 0.0, clock()

    @property
    def left(self) -> float | None:
        """Until the budget's end; None without one of hours."""
        return None if self._budget is None else max(0.0, self._budget - self.spent)

    @property
    def left_of_more(self) -> float:
        """Until the end of what the first trial has beyond the budget."""
        return max(0.0, (1 + FIRST_MORE) * (self._budget or 0.0) - self.spent)

    @property
    def over_s(self) -> float:
        """Seconds since the budget's end; 0 before."""
        return 0.0 if self._budget is None else max(0.0, 3600 * (self.spent - self._budget))

    @property
    def spent(self) -> float:
        """Over all submissions."""
        return self.before + (self._clock() - self.since) / 3600

    @property
    def line(self) -> str:
        """Why a search is over when they are; "" without a budget of hours."""
        return "" if self._budget is None else f"the budget of {duration(3600 * self._budget)} is spent"


@dataclass(frozen=True, kw_only=True)
class FinalistsPrice:
    """What is left to do when dev has chosen. trainings: beyond those of the search. seconds: with 1, 2, … of the recipe's seeds;
    None while no speed is known."""

    trainings: int
    sentences: int
    seconds: tuple[float, ...] | None

    @property
    def line(self) -> str:
        """The price as a phrase."""
        took = "no speed is known yet" if self.seconds is None else f"about {duration(self.seconds[-1])}, scores included"
        return f"{counted(self.trainings, 'training')} more, {self.sentences:,} sentences, {took}"


class Finalists:
    """The price of a search's finalists, and what a budget of hours has for them. It follows from the recipe and one known speed, not from
    what the store holds of them: submitted again, a search has no more time than before.

    at_once: stages that run at the same time.
    """

    def __init__(self, planned: PlannedSearch, forecasts: Forecasts, *, at_once: int = 1) -> None:
        self._planned, self._forecasts, self._at_once = planned, forecasts, at_once
        self._known: FinalistsPrice | None = None

    @property
    def price(self) -> FinalistsPrice:
        """The price, by suggestions that stand for those that dev will choose."""
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
        """The hours of the budget that are kept for them while trials run; 0 while no speed is known. after_first: whether a trial has come
        to its end; before that it has room: without one there is no finalist."""
        budget, seconds = self._planned.search.budget, self.price.seconds
        if budget is None or budget.hours is None or seconds is None:
            return 0.0
        room = 0.0 if after_first else FIRST_ROOM * (self._trial_s or 0.0) / 3600
        return min(seconds[-1] / 3600, MOST_KEPT * budget.hours, max(0.0, budget.hours - room))

    def seeds(self, hours_left: float | None, *, chosen: FinalistsChosen | None = None) -> tuple[int, ...]:
        """The recipe's seeds for which there is time, by all speeds until now: the first one in any case, and those that were chosen
        earlier."""
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
