"""Train on a user file until a deadline: first with default settings, then a search on dev, then more seeds of the chosen settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sentdist.errors import SentdistError
from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.suggestions import PlannedSearch, suggestion_text
from sentdist.recipe.tune_recipe import search_values, training_values
from sentdist.recipe.unroll import Plan, Trial
from sentdist.run.backend import Backend, searched
from sentdist.run.progress import Show, SweepProgress, SweepSummary
from sentdist.stages.context import Context
from sentdist.stages.planned import OwnRequest, planned_recipe, planned_search
from sentdist.store.searches import ALL_TRIED, SearchRecord
from sentdist.tasks.task import SATURATED
from sentdist.text import PrintLine

SEEDS = 6  # of the chosen settings; the result is their average
MOST_SEEDS = 32  # if time is left and nothing else to try
FOR_SEARCH = 0.5  # of the time, at least
FOR_FIRST = 0.35  # of the time, at most: a first training that would take more gets fewer rows
JUDGED_AFTER_S = 10.0  # seconds of a first training before its speed is judged: its start is slow
ENOUGH = 0.05  # of the time: less is not worth another search
FOR_REPORT, REPORT_S = 0.02, 5.0  # of the time, and seconds, for report and card


class _OutOfTime(BaseException):  # not an Exception, which would count as a failure of a trial
    """The deadline was reached during a training."""


class _TooSlow(BaseException):
    """A first training would take more than its part of the time. share: fraction of its rows for which there is time."""

    def __init__(self, share: float) -> None:
        self.share = share


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A method with values of the search's space; without values, its default settings."""

    method: str
    suggestion: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Finished trainings of one method on all rows except test rows, and the untouched encoders, all scored on test."""

    settings: Settings
    plan: Plan
    context: Context
    trials: tuple[Trial, ...]
    summary: SweepSummary

    def untouched(self, method: str) -> Trial:
        """Return the trial of the untouched encoder of that name (a method of the recipe)."""
        return next(trial for trial in self.plan.trials if trial.method == method)


class Tuning:
    """The trainings for a request. `best` is the best finished result at any moment.

    Args:
        data: data root.
        budget_s: seconds from `began` until the deadline; None for the first training only.
        began: start, by `clock`; None for now.
    """

    def __init__(
        self,
        request: OwnRequest,
        workplace: Backend,
        *,
        store: str,
        data: Path | None,
        print_line: PrintLine,
        tracking: str | None = None,
        budget_s: float | None = None,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.best: Trained | None = None
        self._request, self._workplace, self._tracking = request, workplace, tracking
        self._store, self._data = store, data
        self._print = print_line
        self._budget = budget_s
        self._clock = clock
        self._began = self._clock() if began is None else began
        self._limit: int | None = None
        self._has_all_tried = False
        self._ended_by: BaseException | None = None
        self._seconds: dict[str, float] = {}  # settings, spelt -> of one seed

    @property
    def left(self) -> float:
        """Seconds until the deadline, less the time for scores, report and card."""
        if self._budget is None:
            return float("inf")
        return self._began + (1 - FOR_REPORT) * self._budget - REPORT_S - self._scoring_s - self._clock()

    def check(self) -> None:
        """Check the request without building anything.

        Raises:
            SentdistError: a mistake in the request.
        """
        self._plan(Settings(method=self._request.asked.default_method), [0])
        if self._budget is not None:
            self._planned_search()

    def run(self) -> None:
        """Train until the time is up or nothing is left to try.

        Raises:
            SentdistError: the first training failed.
        """
        default = self._first()
        if self._budget is None:
            return
        try:
            chosen = self._search(default)
            self._print(f"More seeds of {_named(chosen)}.")
            self._more_seeds(chosen)
        except _OutOfTime:
            self._print("The time is up: what is unfinished is kept for the next call.")
        except SentdistError as error:  # the first training is a result
            self._print(f"FAILED  {error} What was finished before is the result.")

    def finished(self) -> Trained | None:
        """Return `best`, recorded in the store as the sweep that reports read."""
        if self.best is not None:
            seeds = [trial.seed or 0 for trial in self.best.trials]
            self.best = self._trained(self.best.settings, seeds, print_line=lambda line: None)
        return self.best

    def _first(self) -> Settings:
        """Train with the default settings and return them; use fewer rows if all would take too much of the time."""
        settings = Settings(method=self._request.asked.default_method)

        def judge(progress: SweepProgress) -> None:
            most = FOR_FIRST * (self._budget or float("inf"))
            for running in progress.running.values():
                spent = progress.now - running.since
                if running.done and spent > JUDGED_AFTER_S and spent / running.done > most:
                    self._end(_TooSlow(most * running.done / spent))
                    return

        while self.best is None:
            try:
                self.best = self._trained(settings, [0], show=judge)
            except _TooSlow as slow:
                rows = self._limit or self._request.asked.num_rows
                self._limit = max(self._request.asked.batch_sizes[-1], int(rows * slow.share))
                self._print(f"There is no time to train on all {rows:,} rows: {self._limit:,} of them are used.")
        found = [self.best.context.store.get(stage) for stage in topological((self.best.trials[0].scores,))]
        self._seconds[str(settings)] = sum(one.record.seconds for one in found if one is not None)
        return settings

    def _planned_search(self) -> tuple[PlannedSearch, Context]:
        recipe = recipe_from_values(search_values(self._request.asked, limit=self._limit), where="the search")
        return planned_search(recipe, store=self._store, data=self._data, resolver=self._request.resolver)

    def _search(self, default: Settings) -> Settings:
        """Search in the time that more seeds leave; time that is left after the seeds is used for the search, too."""
        seconds = self._time_to_search(default)
        return self._chosen(default, self._search_for(seconds)) if seconds > 0 else default

    def _search_for(self, seconds: float) -> SearchRecord:
        planned, context = self._planned_search()
        found = searched(planned, context, self._workplace, self._print, self._tracking, until=self._clock() + seconds)
        self._has_all_tried = found.reason == ALL_TRIED
        return found

    def _time_to_search(self, settings: Settings) -> float:
        """Seconds left beside a whole number of seeds of these settings, so that these end with the time."""
        assert self._budget is not None
        each, left = self._seconds_of(settings), self.left
        for_seeds = min(left, (1 - FOR_SEARCH) * self._budget, SEEDS * each)
        return left - max(1, int(for_seeds / each)) * each

    def _chosen(self, default: Settings, search: SearchRecord) -> Settings:
        """The settings with the best final dev score; the default ones unless others are better beyond noise."""
        own = self._planned_search()[0].own_values
        devs: dict[str, tuple[float, Settings]] = {}
        for trial in search.trials:
            if trial.state == "finished" and trial.rungs:
                is_default = trial.method == default.method and all(own[path] == value for path, value in trial.suggestion.items())
                settings = default if is_default else Settings(method=trial.method, suggestion=trial.suggestion)
                devs[str(settings)] = (trial.rungs[-1].last_dev, settings)
        if not devs:
            return default
        if min(dev for dev, _ in devs.values()) >= SATURATED:
            self._print(f"Dev is saturated: all settings reach {SATURATED:g} of 100 or more, so it chooses none.")
        best_dev, best = max(devs.values(), key=lambda one: one[0])
        default_dev = devs.get(str(default), (float("-inf"), default))[0]
        if best_dev - default_dev > self._request.dev_error:
            return best
        if best != default:
            self._print(f"On dev {_named(best)} is best by {best_dev - default_dev:.2f} points, within chance: the default settings stay.")
        return default

    def _more_seeds(self, chosen: Settings) -> None:
        """Train the chosen settings with ever more seeds until the next would end too late; use the rest of the time for the search."""
        assert self.best is not None
        seeds, at_once = len(self.best.trials) if self.best.settings == chosen else 0, 1
        most = MOST_SEEDS if self._request.asked.trials is None else SEEDS
        while seeds < most and self.left > 0.8 * (each := self._seconds_of(chosen)):
            more = min(at_once, max(1, int(self.left / each)), most - seeds)
            began = self._clock()
            found = self._trained(chosen, range(seeds + more), show=self._stop_in_time)
            self._seconds[str(chosen)] = (self._clock() - began) / more
            self.best, seeds, at_once = found, seeds + more, 2 * at_once
        if self._budget and self.left > ENOUGH * self._budget and not self._has_all_tried:
            self._print("The time that is left is used for the search; the next call goes on from it.")
            self._search_for(self.left)

    def _stop_in_time(self, progress: SweepProgress) -> None:
        assert self._budget is not None
        if self.left < -0.01 * self._budget:
            self._end(_OutOfTime())

    def _seconds_of(self, settings: Settings) -> float:
        """Seconds of one seed: measured, or else scaled from the first training by the number of sentences."""
        if (known := self._seconds.get(str(settings))) is not None:
            return known
        assert self.best is not None
        first, plan = self._seconds[str(Settings(method=self._request.asked.default_method))], self._plan(settings, [0])[0]
        default = self._plan(Settings(method=self._request.asked.default_method), [0])[0]
        return first * _work(plan) / _work(default)

    @property
    def _scoring_s(self) -> float:
        """Seconds for the scores of the final encoder, as measured for an untouched one."""
        if self.best is None or len(self.best.trials) < 2:
            return 0.0
        untouched = next(trial for trial in self.best.plan.trials if trial.seed is None)
        found = self.best.context.store.get(untouched.scores)
        return 0.0 if found is None else found.record.seconds

    def _trained(
        self, settings: Settings, seeds: Sequence[int], *, print_line: PrintLine | None = None, show: Show | None = None
    ) -> Trained:
        """Train with these seeds what the store lacks. Raise the first error if no training is finished."""
        plan, context = self._plan(settings, seeds)
        self._ended_by = None
        summary = self._workplace.build(plan, context, print_line=print_line or self._print, show=show)
        if self._ended_by is not None:  # on a cluster, where it cannot be raised from within
            raise self._ended_by
        there = tuple(trial for trial in plan.trials if trial.method == settings.method and context.store.get(trial.scores) is not None)
        for failure in () if there else summary.failures:
            assert failure.error is not None, "it is among the failures"
            raise failure.error
        return Trained(settings=settings, plan=plan, context=context, trials=there, summary=summary)

    def _end(self, because: BaseException) -> None:
        if self._ended_by is None:
            self._ended_by = because
            self._workplace.end(self._request.asked.recipe_name, because)

    def _plan(self, settings: Settings, seeds: Sequence[int]) -> tuple[Plan, Context]:
        asked = self._request.asked
        values = training_values(asked, method=settings.method, suggestion=settings.suggestion, seeds=seeds, limit=self._limit)
        recipe = recipe_from_values(values, where=asked.recipe_name)
        return planned_recipe(recipe, store=self._store, data=self._data, resolver=self._request.resolver)


def _named(settings: Settings) -> str:
    return f"{settings.method} ({suggestion_text(settings.suggestion) if settings.suggestion else 'default settings'})"


def _work(plan: Plan) -> int:
    """Sentences that the trainings of a plan read."""
    return sum(stage.num_sentences(plan.rows) for stage in plan.stages if stage.kind == "train")
