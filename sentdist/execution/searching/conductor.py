"""What a search does next: whom to try, who goes on, when it is over; every decision is noted before it has a consequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from sentdist.errors import ResourceError, counted, duration, named
from sentdist.execution.disk_estimate import search_disk_estimate
from sentdist.execution.searching.budgets import Finalists, Hours, check_budget, steady_clock
from sentdist.execution.searching.halving import survives_rung
from sentdist.execution.searching.lines import too_short, trial_line
from sentdist.execution.searching.old_rungs import drop_below, drop_left, keep_curve_of
from sentdist.execution.searching.prices import Forecasts, StoreBefore, spent_on
from sentdist.execution.searching.proposals import Candidate, MakeSuggester, Proposals
from sentdist.execution.searching.trial import ToRun
from sentdist.plan.stages import to_share
from sentdist.plan.suggestions import PlannedSearch
from sentdist.print_line import PrintLine
from sentdist.stages.context import Context
from sentdist.stages.rung_records import RungScore, rung_score
from sentdist.store.searches import (
    Finalist,
    FinalistsChosen,
    RungReached,
    SearchBegun,
    SearchEvent,
    SearchRecord,
    SearchState,
    SearchTrial,
    SubmissionSeen,
    TrialEnded,
    TrialSuggested,
    append_event,
    latest,
    load_events,
)

ALL_TRIED = "all trials are made"


Watch = Callable[[Sequence[SearchEvent]], None]


class Conductor:
    """One search. What it decides follows from what it has noted: after a restart it notes and decides the same from there on.

    context: whose `shares` are those of the search. watch: takes all that is noted, whenever there is more.
    clock: None: `steady_clock()`. at_once: stages that run at the same time. until: when this submission ends, by the clock, in place of
    the budget's hours; who gives it trains the finalists, too.
    """

    def __init__(
        self,
        planned: PlannedSearch,
        context: Context,
        make: MakeSuggester,
        *,
        print_line: PrintLine,
        watch: Watch | None = None,
        clock: Callable[[], float] | None = None,
        at_once: int = 1,
        until: float | None = None,
    ) -> None:
        self.planned = planned
        self.context = context
        self.forecasts = Forecasts(planned, context.store)
        self._finalists = Finalists(planned, self.forecasts, at_once=at_once)
        self._can_judge = False  # whether the budget was held against a known speed
        self._search, self._print_line, self._watch, self._clock = planned.search, print_line, watch, clock or steady_clock()
        self._identity, self._at_once, self._until = planned.identity, at_once, until
        self._finished_methods: set[str] = set()
        self._unfinished: list[int] = []
        self._state = SearchState()
        self._proposals = Proposals(planned, make, self._state, print_line=print_line)
        self._trains = self._proposals.trains
        self._hours = Hours(self._search.budget, self._clock)
        self._earlier = StoreBefore(places=frozenset(), since=None)
        self._can_note = True
        self._size: int | None = None  # of the file of this search's lines, behind its own last one
        self.reason: str | None = None

    @property
    def record(self) -> SearchRecord:
        """All that is noted."""
        return self._state.record(self.planned.recipe.name)

    def trial(self, number: int) -> SearchTrial:
        """How a trial stands."""
        return self._state.trials[number]

    def line(self, number: int) -> str:
        """How a trial stands, for people."""
        trial = self.trial(number)
        is_best = trial.state == "finished" and trial.dev == self._state.best_dev(trial.method)
        return trial_line(trial, self.planned.recipe.methods[trial.method].title or trial.method, is_best=is_best)

    @property
    def hours_left(self) -> float | None:
        """For trials, until only the finalists' part of the budget is left; None without one of hours. The first trial that has reached a
        rung has some time beyond the budget: had none come to its end, all would have been for nothing."""
        if self._until is not None:
            return max(0.0, self._until - self._clock()) / 3600
        left = self._hours.left
        if left is None:
            return None
        is_due = not self._has_finished and any(trial.state == "running" and trial.rungs for trial in self._state.trials.values())
        return self._hours.left_of_more if is_due else max(0.0, left - self._finalists.hours(after_first=self._has_finished))

    @property
    def _has_finished(self) -> bool:
        return any(trial.state == "finished" for trial in self._state.trials.values())

    def begin(self) -> None:
        """Take up what an earlier submission has left, and note that this one begins.

        Raises:
            RecipeError: the budget is too small for one trial; nothing was started.
            StoreError: the store cannot be written, or has no room for the finalists.
        """
        self._can_judge = self._until is not None or check_budget(self.planned, self.forecasts)
        store, name = self.context.store, self.planned.recipe.name
        before = latest(load_events(store, name), identity=self._identity)
        for event in before:
            self._replay(event)
        if before:
            self._hours.before = self._state.spent_hours
        chosen = self._state.chosen
        if chosen is not None and chosen.reason == self._hours.line and self._until is None:
            self.reason = chosen.reason  # what is left of these hours was for the finalists
        self._check_disk()
        self._earlier = StoreBefore.read(store, since=before[0].at if before else None)
        self._hours.since = self._clock()
        methods = {method: tuple(fields) for method, fields in self.planned.fields.items()}
        recipe = self.planned.recipe.model_dump(mode="json", exclude_unset=True)
        self._note(SearchBegun(identity=self._identity, recipe=recipe, methods=methods, at=self._clock()))
        for number, trial in sorted(self._state.trials.items()):
            # Whatever the cause of a failure was may be gone.
            if trial.state == "failed" or (trial.state == "running" and not self._settled(trial)):
                self._unfinished.append(number)
        drop_left(self.context.store, self._state.trials, self._trains, self._search.shares)
        if self._state.trials:
            of_them = f", {counted(len(self._unfinished), 'unfinished one')} among them" if self._unfinished else ""
            self._print_line(f"{name}: goes on after {counted(len(self._state.trials), 'trial')}{of_them}")

    def _check_disk(self) -> None:
        known = {method: number for method in self.planned.methods if (number := self.planned.num_trials(method)) is not None}
        left = {method: max(0, number - self._proposals.num_tried(method)) for method, number in known.items()}
        estimate = search_disk_estimate(self.planned, self.context, left, at_once=self._at_once)
        self.context.store.check_writable(needed_bytes=estimate.least)
        if warning := estimate.warning(self.context.store.free_bytes()):
            self._print_line(warning)

    def next(self) -> ToRun | None:
        """The next trial; None when there is none to begin: the search is over, or ends with the trials that run."""
        if self.reason is not None:
            return None
        if (reason := self._spent()) is not None:
            self.reason = reason
            return None
        if self._unfinished:
            return self._to_run(self._unfinished.pop(0))
        budget = self._search.budget
        if budget is not None and budget.samples is not None and len(self._state.trials) >= budget.samples:
            self.reason = f"the budget of {counted(budget.samples, 'trial')} is spent"
            return None
        for method in sorted(self._open_methods(), key=self._proposals.num_tried):
            found = self._proposals.fresh(method, self._cheapest)
            if found is None:
                self._finished_methods.add(method)
                self._print_line(f"{method}: nothing new is suggested; it ends with {counted(self._proposals.num_tried(method), 'trial')}")
                continue
            number = max(self._state.trials, default=-1) + 1
            self._note(
                TrialSuggested(
                    number=number, method=method, suggestion=found.suggestion, train=found.train.key,
                    forecast_s=self.forecasts.seconds(found.train), at=self._clock(),
                )
            )  # fmt: skip
            self._proposals.accept(number, found)
            return self._to_run(number)
        self.reason = ALL_TRIED
        return None

    def arrive(self, number: int, share: float, found: RungScore | None = None) -> bool:
        """Note that a trial has come to a share of its training; whether it goes on. found: how it stood there; None: the store has it.

        Raises:
            RecipeError: by the first speed that is measured, the budget is too small for one trial.
        """
        train = self._trains[number]
        stage = to_share(train, share)
        found = found or rung_score(train, share, self.context)
        self.forecasts.something_was_built()
        if found is None or found.dev is None or found.last is None:
            at_share = f"no dev score at {100 * share:g} % of the training"
            expected = "similarities that differ"
            self.fail(number, ResourceError(where=f"trial {number}", found=at_share, expected=expected, remedy="The others go on."))
            return False
        price = spent_on(stage, self.context.store, earlier=self._earlier, known=self._state.paid_for)
        self._note(
            RungReached(
                number=number, share=share, key=stage.key, place=stage.place, step=found.step, dev=found.dev, last_dev=found.last,
                sentences=found.sentences, seconds=found.seconds, paid_s=price.seconds, paid_sentences=price.sentences,
                paid_for=price.stages, at=self._clock(),
            )
        )  # fmt: skip
        drop_below(self.context.store, train, share, self._search.shares)
        if not self._can_judge:
            self._can_judge = check_budget(
                self.planned, self.forecasts, remedy="Raise the budget, or train on less: what was measured is kept."
            )
            self._print_line(f"To train the finalists: {self._finalists.price.line}.")
        if share >= 1.0:
            if not self._has_finished and (over := self._hours.over_s):
                self._print_line(f"The first trial has come to its end {duration(over)} after the budget's: without one nothing is chosen.")
            self._end(number, "finished")
            return False
        if not self._goes_on(self.trial(number)):
            self._end(number, "pruned")
            return False
        return True

    def fail(self, number: int, error: BaseException) -> None:
        """Note that a trial cannot be finished."""
        self._end(number, "failed", error=named(error))

    def choose(self) -> tuple[Finalist, ...]:
        """The best on dev of each method, among trials that came to their end; noted, with why the search is over."""
        left = None if self._until is not None else self._hours.left
        found, seeds = [], self._finalists.seeds(left, chosen=self._state.chosen)
        if len(seeds) < len(self.planned.recipe.seeds):
            self._print_line(f"The budget has time for finalists with {counted(len(seeds), 'seed')} of {len(self.planned.recipe.seeds)}.")
        record = self.record
        for method in self.planned.methods:
            done = [trial for trial in record.of_method(method) if trial.state == "finished" and trial.dev is not None]
            best = sorted(done, key=lambda trial: (-(trial.dev or 0.0), trial.number))[: self._search.finalists]
            for place, trial in enumerate(best, start=1):
                cells = {seed: self.planned.scores(method, trial.suggestion, seed=seed).key for seed in seeds}
                what, dev = trial.suggestion, trial.dev or 0.0
                found.append(Finalist(number=trial.number, method=method, place=place, suggestion=what, dev=dev, cells=cells))
        if not found and left == 0.0:
            self._print_line(too_short(tuple(record.trials), self._search.shares))
        self._note(SubmissionSeen(at=self._clock()))
        self._note(FinalistsChosen(finalists=tuple(found), reason=self.reason or ALL_TRIED, at=self._clock()))
        return tuple(found)

    def stop(self) -> None:
        """Note that this submission ends here, unless the last note failed: perhaps another process carries the search out now."""
        if self._can_note:
            self._note(SubmissionSeen(at=self._clock()))

    def _settled(self, trial: SearchTrial) -> bool:
        """Whether what is noted of a running trial ends it: it was stopped between a rung and what follows from it."""
        if not trial.rungs:
            return False
        if trial.rungs[-1].share >= 1.0:
            self._end(trial.number, "finished")
            return True
        if not self._goes_on(trial):
            self._end(trial.number, "pruned")
            return True
        return False

    def _open_methods(self) -> list[str]:
        limits = {method: self.planned.num_trials(method) for method in self.planned.methods}
        return [
            method
            for method, limit in limits.items()
            if method not in self._finished_methods and (limit is None or self._proposals.num_tried(method) < limit)
        ]

    def _spent(self) -> str | None:
        budget = self._search.budget
        if budget is None:
            return None
        if self.hours_left == 0.0 or (self._until is None and self._hours.left == 0.0):  # none begins in what the first has beyond it
            return self._hours.line
        if budget.sentences is not None and self._state.spent_sentences >= budget.sentences:
            return f"the budget of {budget.sentences:,} sentences is spent"
        return None

    def _cheapest(self, candidates: Sequence[Candidate]) -> Candidate:
        return min(candidates, key=lambda one: self.forecasts.sentences(one.train)) if len(candidates) > 1 else candidates[0]

    def _to_run(self, number: int) -> ToRun:
        trial = self.trial(number)
        done = max((rung.share for rung in trial.rungs), default=0.0)
        shares = tuple(share for share in self._search.shares if share > done)
        return ToRun(number=number, method=trial.method, suggestion=trial.suggestion, train=self._trains[number], shares=shares)

    def _goes_on(self, trial: SearchTrial) -> bool:
        """Whether a trial goes on from its last rung."""
        halving, last = self._search.halving, trial.rungs[-1]
        if halving is None or last.share >= 1.0:
            return True
        return survives_rung(last.dev, self._state.devs_before(trial), halving.keep)

    def _end(self, number: int, state: Literal["finished", "pruned", "failed"], *, error: str | None = None) -> None:
        store, train, shares = self.context.store, self._trains[number], self._search.shares
        if state == "pruned":
            keep_curve_of(store, train, shares)  # before it is noted: whoever shows the trial looks for its curve
        self._note(TrialEnded(number=number, state=state, error=error, at=self._clock()))
        if state == "pruned":
            drop_below(store, train, 1.0, shares)

    def _note(self, event: SearchEvent) -> None:
        self._can_note = False
        self._size = append_event(self.context.store, self.planned.recipe.name, event, size=self._size)
        self._can_note = True
        self._take(event)
        if self._watch is not None:
            self._watch(self._state.events)

    def _replay(self, event: SearchEvent) -> None:
        if isinstance(event, TrialSuggested):
            self._proposals.suggest_again(event)
        self._take(event)

    def _take(self, event: SearchEvent) -> None:
        """Let an event have its effect, on what is known and on who suggests."""
        self._state.take(event)
        if isinstance(event, RungReached | TrialEnded):
            self._proposals.learn(event)
