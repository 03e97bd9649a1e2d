"""What a search does next: whom to try, who goes on, when it is over; every decision is noted before it has a consequence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from sentdist.errors import ResourceError, SentdistError, counted, named
from sentdist.execution.searching.budgets import Finalists, Hours, check_budget
from sentdist.execution.searching.halving import goes_on
from sentdist.execution.searching.leftovers import drop_below, drop_left
from sentdist.execution.searching.lines import trial_line
from sentdist.execution.searching.prices import Forecasts, paid
from sentdist.execution.searching.trial import ToRun
from sentdist.plan.search import Axis
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train, to_share
from sentdist.plan.suggestions import Searched, Suggestion, told
from sentdist.stages.context import Context
from sentdist.stages.rungs import standing
from sentdist.store.searches import (
    Begun,
    Chosen,
    Ended,
    Event,
    Finalist,
    Left,
    Rung,
    SearchRecord,
    SearchTrial,
    Suggested,
    append_event,
    latest,
    load_events,
    search_record,
)

MOST_REPEATS = 300  # suggestions in a row that were there before: then a method has no more
CANDIDATES = 4  # suggestions among which `prefer_cheaper` chooses
ALL_TRIED = "all trials are made"


class Suggester(Protocol):
    """Who suggests for one method, see `TunedSuggester`."""

    def ask(self, name: str) -> dict[str, Json] | None: ...

    def tell(self, name: str, score: float, *, rung: int) -> None: ...

    def end(self, name: str, score: float | None, *, is_pruned: bool = False) -> None: ...


MakeSuggester = Callable[[Mapping[str, Axis]], Suggester]
Watch = Callable[[Sequence[Event]], None]


class Conductor:
    """One search. What it decides follows from what it has noted: after a restart it notes and decides the same from there on.

    context: whose `shares` are those of the search. say: takes a line for people. watch: takes all that is noted, whenever there is more.
    at_once: stages that run at the same time.
    """

    def __init__(
        self,
        planned: Searched,
        context: Context,
        make: MakeSuggester,
        *,
        say: Callable[[str], None],
        watch: Watch | None = None,
        clock: Callable[[], float] = time.time,
        at_once: int = 1,
    ) -> None:
        self.planned = planned
        self.context = context
        self.forecasts = Forecasts(planned, context.store)
        self._finalists = Finalists(planned, self.forecasts, at_once=at_once)
        self._can_judge = False  # whether the budget was held against a known speed
        self._chosen: Chosen | None = None  # by an earlier submission
        self._search, self._say, self._watch, self._clock = planned.search, say, watch, clock
        self._identity = planned.identity
        self._suggesters = {method: make(planned.axes(method)) for method in planned.methods}
        self._asked = dict.fromkeys(planned.methods, 0)
        self._tried: dict[str, dict[str, int]] = {method: {} for method in planned.methods}  # method -> key of a training -> trial
        self._finished_methods: set[str] = set()
        self._unfinished: list[int] = []
        self._events: list[Event] = []
        self._trials: dict[int, SearchTrial] = {}
        self._trains: dict[int, Train] = {}
        self._names: dict[int, str] = {}  # under which the suggester of a trial knows it
        self._at_rung: dict[tuple[str, float], list[float]] = {}  # method, share -> dev scores there, in order of arrival
        self._place_at_rung: dict[int, int] = {}  # trial -> how many came to its last rung before it
        self._best: dict[str, float] = {}  # method -> dev score, of finished trials
        self._spent_sentences = 0
        self._paid_for: set[str] = set()
        self._has_diverged = False
        self._hours = Hours(self._search.budget, clock)
        self._first = self._hours.since
        self.reason: str | None = None

    @property
    def record(self) -> SearchRecord:
        """All that is noted; made anew from every line, so once in a search and not once a trial."""
        return search_record(self.planned.recipe.name, self._events)

    def trial(self, number: int) -> SearchTrial:
        """How a trial stands."""
        return self._trials[number]

    def line(self, number: int) -> str:
        """How a trial stands, for people."""
        trial = self._trials[number]
        is_best = trial.state == "finished" and trial.dev == self._best.get(trial.method)
        return trial_line(trial, self.planned.recipe.methods[trial.method].title or trial.method, is_best=is_best)

    @property
    def hours_left(self) -> float | None:
        """For trials, until only the finalists' part of the budget is left; None without one of hours."""
        left = self._hours.left
        return None if left is None else max(0.0, left - self._finalists.hours)

    def begin(self) -> None:
        """Take up what an earlier submission has left, and note that this one begins.

        Raises:
            RecipeError: the budget is too small for one trial; nothing was started.
            StoreError: the store cannot be written.
        """
        self._can_judge = check_budget(self.planned, self.forecasts)
        self.context.store.check_writable()
        store, name = self.context.store, self.planned.recipe.name
        before = latest(load_events(store, name), identity=self._identity)
        if before:
            record = search_record(name, before)
            self._hours.before = record.spent_hours
            self._first = before[0].at
        for event in before:
            self._replay(event)
        if self._chosen is not None and self._chosen.reason == self._hours.told:
            self.reason = self._chosen.reason  # what is left of these hours was for the finalists
        self._hours.since = self._clock()
        methods = {method: tuple(fields) for method, fields in self.planned.fields.items()}
        recipe = self.planned.recipe.model_dump(mode="json", exclude_unset=True)
        self._note(Begun(identity=self._identity, recipe=recipe, methods=methods, at=self._clock()))
        for trial in list(self._trials.values()):
            if trial.state == "failed":  # whatever the cause was may be gone
                self._trials[trial.number] = trial.model_copy(update={"state": "running", "error": None})
                self._names.pop(trial.number, None)
                self._unfinished.append(trial.number)
            elif trial.state == "running" and not self._settled(trial):
                self._unfinished.append(trial.number)
        drop_left(self.context.store, self._trials, self._trains, self._search.shares)
        if self._trials:
            of_them = f", {counted(len(self._unfinished), 'unfinished one')} among them" if self._unfinished else ""
            self._say(f"{name}: goes on after {counted(len(self._trials), 'trial')}{of_them}")

    def next(self) -> ToRun | None:
        """The next trial; None when there is none to begin: the search is over, or ends with the trials that run."""
        if self.reason is not None:
            return None
        if (reason := self._spent()) is not None:
            self.reason = reason
            return None
        if self._unfinished:
            number = self._unfinished.pop(0)
            return self._to_run(self._trials[number])
        budget = self._search.budget
        if budget is not None and budget.samples is not None and len(self._trials) >= budget.samples:
            self.reason = f"the budget of {counted(budget.samples, 'trial')} is spent"
            return None
        for method in sorted(self._open_methods(), key=lambda one: len(self._tried[one])):
            found = self._fresh(method, None)
            if found is None:
                self._finished_methods.add(method)
                self._say(f"{method}: nothing new is suggested; it ends with {counted(len(self._tried[method]), 'trial')}")
                continue
            suggestion, train = found
            number = len(self._trials)
            self._note(
                Suggested(
                    number=number, method=method, suggestion=suggestion, train=train.key, forecast_s=self.forecasts.seconds(train),
                    at=self._clock(),
                )
            )  # fmt: skip
            self._take(self._events[-1], train)
            return self._to_run(self._trials[number])
        self.reason = ALL_TRIED
        return None

    def arrive(self, number: int, share: float) -> bool:
        """Note that a trial has come to a share of its training, which the store holds; whether it goes on.

        Raises:
            RecipeError: by the first speed that is measured, the budget is too small for one trial.
        """
        trial, train = self._trials[number], self._trains[number]
        stage = to_share(train, share)
        found = standing(train, share, self.context)
        if found is None or found.dev is None or found.last is None:
            at_share = f"no dev score at {100 * share:g} % of the training"
            self.fail(
                number,
                ResourceError(where=f"trial {number}", found=at_share, expected="similarities that differ", remedy="The others go on."),
            )
            return False
        price = paid(stage, self.context.store, since=self._first, known=self._paid_for)
        self._note(
            Rung(
                number=number, share=share, key=stage.key, place=stage.place, step=found.step, dev=found.dev, last_dev=found.last,
                sentences=found.sentences, seconds=found.seconds, paid_s=price.seconds, paid_sentences=price.sentences, paid_for=price.stages, at=self._clock(),
            )
        )  # fmt: skip
        self._take(self._events[-1])
        drop_below(self.context.store, train, share, self._search.shares)
        if not self._can_judge:
            self._can_judge = check_budget(
                self.planned, self.forecasts, remedy="Raise the budget, or train on less: what was measured is kept."
            )
            self._say(f"To train the finalists: {self._finalists.price.told}.")
        trial = self._trials[number]
        if share >= 1.0:
            self._end(number, "finished")
            return False
        if not self._goes_on(trial):
            self._end(number, "pruned")
            return False
        return True

    def fail(self, number: int, error: BaseException) -> None:
        """Note that a trial cannot be finished."""
        self._end(number, "failed", error=named(error))

    def choose(self) -> tuple[Finalist, ...]:
        """The best on dev of each method, among trials that came to their end; noted, with why the search is over."""
        found, seeds = [], self._finalists.seeds(self._hours.left, chosen=self._chosen)
        if len(seeds) < len(self.planned.recipe.seeds):
            self._say(f"The budget has time for finalists with {counted(len(seeds), 'seed')} of {len(self.planned.recipe.seeds)}.")
        record = self.record
        for method in self.planned.methods:
            done = [trial for trial in record.of_method(method) if trial.state == "finished" and trial.dev is not None]
            best = sorted(done, key=lambda trial: (-(trial.dev or 0.0), trial.number))[: self._search.finalists]
            for place, trial in enumerate(best, start=1):
                cells = {seed: self.planned.scores(method, trial.suggestion, seed=seed).key for seed in seeds}
                what, dev = trial.suggestion, trial.dev or 0.0
                found.append(Finalist(number=trial.number, method=method, place=place, suggestion=what, dev=dev, cells=cells))
        self._note(Left(at=self._clock()))
        self._note(Chosen(finalists=tuple(found), reason=self.reason or ALL_TRIED, at=self._clock()))
        return tuple(found)

    def stop(self) -> None:
        """Note that this submission ends here."""
        self._note(Left(at=self._clock()))

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
            if method not in self._finished_methods and (limit is None or len(self._tried[method]) < limit)
        ]

    def _spent(self) -> str | None:
        budget = self._search.budget
        if budget is None:
            return None
        if self.hours_left == 0.0:
            return self._hours.told
        if budget.sentences is not None and self._spent_sentences >= budget.sentences:
            return f"the budget of {budget.sentences:,} sentences is spent"
        return None

    def _fresh(self, method: str, wanted: Suggestion | None) -> tuple[dict[str, Json], Train] | None:
        """A suggestion that a method has not tried, for the next trial. wanted: the one that was noted, when it is asked again."""
        suggester, candidates = self._suggesters[method], list[tuple[str, dict[str, Json], Train]]()
        most = CANDIDATES if self._search.prefer_cheaper else 1
        for _ in range(MOST_REPEATS):
            name = f"{method}-{self._asked[method]}"
            self._asked[method] += 1
            suggestion = suggester.ask(name)
            if suggestion is None:
                break
            try:
                train = self.planned.train(method, suggestion)
            except SentdistError as error:  # values that do not go together
                if wanted is None:
                    self._say(f"{method}: {told(suggestion)} cannot be trained and is left out: {error}")
                suggester.end(name, None)
                continue
            if train.key in self._tried[method] or train.key in [other.key for _, _, other in candidates]:
                known = self._trials.get(self._tried[method].get(train.key, -1))
                suggester.end(name, known.dev if known is not None and known.state == "finished" else None)
                continue
            candidates.append((name, suggestion, train))
            if len(candidates) == most:
                break
        if not candidates:
            return None
        if wanted is not None:
            name, suggestion, train = next((one for one in candidates if one[1] == wanted), candidates[0])
        else:
            name, suggestion, train = min(candidates, key=lambda one: self.forecasts.sentences(one[2])) if most > 1 else candidates[0]
        for other, _, _ in candidates:
            if other != name:
                suggester.end(other, None)
        self._names[len(self._trials)] = name
        return suggestion, train

    def _to_run(self, trial: SearchTrial) -> ToRun:
        done = max((rung.share for rung in trial.rungs), default=0.0)
        shares = tuple(share for share in self._search.shares if share > done)
        train = self._trains[trial.number]
        return ToRun(number=trial.number, method=trial.method, suggestion=trial.suggestion, train=train, shares=shares)

    def _goes_on(self, trial: SearchTrial) -> bool:
        """Whether a trial goes on from its last rung."""
        halving, last = self._search.halving, trial.rungs[-1]
        if halving is None or last.share >= 1.0:
            return True
        there = self._at_rung[trial.method, last.share]
        return goes_on(last.dev, there[: self._place_at_rung[trial.number]], halving.keep)

    def _end(self, number: int, state: Literal["finished", "pruned", "failed"], *, error: str | None = None) -> None:
        self._note(Ended(number=number, state=state, error=error, at=self._clock()))
        self._take(self._events[-1])
        if state == "pruned":
            drop_below(self.context.store, self._trains[number], 1.0, self._search.shares)

    def _note(self, event: Event) -> None:
        append_event(self.context.store, self.planned.recipe.name, event)
        self._events.append(event)
        if self._watch is not None:
            self._watch(self._events)

    def _replay(self, event: Event) -> None:
        self._events.append(event)
        if not isinstance(event, Suggested):
            self._take(event)
            return
        found = self._fresh(event.method, event.suggestion)
        if found is None or found[0] != event.suggestion:
            if not self._has_diverged:
                self._has_diverged = True
                self._say(f"trial {event.number}: its suggestion was made by another version; those that follow may differ, too")
            if (name := self._names.pop(event.number, None)) is not None:
                self._suggesters[event.method].end(name, None)
            found = dict(event.suggestion), self.planned.train(event.method, event.suggestion)
        self._take(event, found[1])

    def _take(self, event: Event, train: Train | None = None) -> None:
        """Let an event have its effect; `train` goes with a suggestion."""
        match event:
            case Chosen():
                self._chosen = event
            case Suggested():
                assert train is not None
                self._trains[event.number] = train
                self._tried[event.method][train.key] = event.number
                self._trials[event.number] = SearchTrial(
                    number=event.number, method=event.method, suggestion=event.suggestion, train=event.train, state="running",
                    forecast_s=event.forecast_s,
                )  # fmt: skip
            case Rung() if event.number in self._trials:
                trial = self._trials[event.number]
                self._trials[event.number] = trial.model_copy(update={"rungs": (*trial.rungs, event), "state": "running", "error": None})
                there = self._at_rung.setdefault((trial.method, event.share), [])
                self._place_at_rung[event.number] = len(there)
                there.append(event.dev)
                self._paid_for |= set(event.paid_for)
                self._spent_sentences += event.paid_sentences
                if (name := self._names.get(event.number)) is not None:
                    self._suggesters[trial.method].tell(name, event.dev, rung=len(trial.rungs) + 1)
            case Ended() if event.number in self._trials:
                trial = self._trials[event.number].model_copy(update={"state": event.state, "error": event.error})
                self._trials[event.number] = trial
                if event.state == "finished" and trial.dev is not None:
                    self._best[trial.method] = max(trial.dev, self._best.get(trial.method, trial.dev))
                if (name := self._names.pop(event.number, None)) is not None:
                    score = trial.dev if event.state != "failed" else None
                    self._suggesters[trial.method].end(name, score, is_pruned=event.state == "pruned")
