"""Choose trials, prune, stop; record every decision before it takes effect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sentdist.errors import ResourceError, StoreError, counted, duration, named
from sentdist.recipe.stages import Train, to_share
from sentdist.recipe.suggestions import PlannedSearch, Suggestion, suggestion_text
from sentdist.run.plan_facts import search_disk_estimate
from sentdist.run.searching.budgets import MOST_KEPT, Finalists, Forecasts, Hours, StoreBefore, check_budget, spent_on, steady_clock
from sentdist.run.searching.proposals import Candidate, MakeSuggester, Proposals
from sentdist.stages.context import Context
from sentdist.stages.rung_records import CHECKPOINT, RungScore, rung_score
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
    keep_pruned_curve,
    latest,
    load_events,
    read_curve,
)
from sentdist.store.store import ArtifactStore
from sentdist.text import PrintLine


def survives_rung(score: float, before: Sequence[float], keep: float) -> bool:
    """Return True if a trial that reaches a rung is among the best `keep` there, itself included; among few, only the best goes on.

    The rule is ASHA's promotion (Li et al. 2020, Algorithm 2), applied once, when a trial arrives: pruned trials are not resumed. So
    a decision depends only on earlier arrivals in their order; Tune's scheduler, which keeps that order in memory, could not repeat it
    after a restart.

    Args:
        before: scores of the trials of its method that came there earlier.
        keep: fraction that goes on.
    """
    better = sum(other > score for other in before)
    return better < max(1, math.floor(keep * (len(before) + 1) + 1e-9))


@dataclass(frozen=True, kw_only=True)
class ToRun:
    """A trial to run. shares: shares of its training still to reach, in order."""

    number: int
    method: str
    suggestion: Suggestion
    train: Train
    shares: tuple[float, ...]

    @property
    def name(self) -> str:
        """Number, method and suggestion as a phrase."""
        return f"{self.number} {self.method} ({suggestion_text(self.suggestion)})"


def trial_line(trial: SearchTrial, name: str, *, is_best: bool) -> str:
    """Return a line on a trial: its rung and score, or how it ended.

    Args:
        name: name of the method.
        is_best: whether it is the best finished trial of its method.
    """
    where = f"trial {trial.number}  {name} ({suggestion_text(trial.suggestion)})"
    if trial.state == "failed":
        return f"{where}: FAILED: {trial.error}"
    if trial.dev is None:
        return f"{where}: begins"
    rung = trial.rungs[-1]
    best = " (best so far)" if is_best else ""
    share = "" if rung.share >= 1.0 else f" at {100 * rung.share:g} %"
    ended = {"pruned": ", goes no further", "running": ", goes on"}.get(trial.state, "")
    return f"{where}: dev {trial.dev:.2f}{share}{best}{ended}, {trial.paid_s:.0f} s"


def too_short(trials: Sequence[SearchTrial], shares: Sequence[float]) -> str:
    """Return a line on a budget of hours that ended without a finished trial. shares: at which trials are scored."""
    more = "With a larger budget the search goes on from here."
    furthest = max((trial for trial in trials if trial.rungs), key=lambda trial: trial.rungs[-1].share, default=None)
    if furthest is None:
        return f"Within the budget no trial has come to {100 * shares[0]:g} % of its training. {more}"
    share, seconds = furthest.rungs[-1].share, furthest.paid_s
    takes = f" in {duration(seconds)}: to its end it takes up to {duration(furthest.whole_s)}" if seconds else ""
    return f"Within the budget no trial has come to its end, one to {100 * share:g} %{takes}. {more}"


def without_finalist(method: str, planned: PlannedSearch, record: SearchRecord) -> str:
    """Return a line on a method without finalist: why, and the time needed by the longest of its trials, or of others' finished ones."""
    own = record.of_method(method)
    if own and all(trial.state == "failed" for trial in own):
        return f"{method}: all of its trials failed, so nothing is chosen."
    line = f"{method}: no trial came to its end, so nothing is chosen, and it is not compared."
    budget = planned.search.budget
    prices = [(trial.whole_s, trial.training_s) for trial in own if trial.rungs and trial.paid_s]
    prices = prices or [(trial.paid_s, trial.paid_s) for trial in record.trials if trial.state == "finished" and trial.paid_s]
    if budget is None or budget.hours is None or not prices:
        return line
    whole_s, training_s = max(prices)
    needed = max((sum(trial.paid_s for trial in record.trials) + training_s) / MOST_KEPT, 3600 * budget.hours + training_s)
    return (
        f"{line} One takes about {duration(whole_s)}: with a budget of about {duration(needed)}, "
        "finalists included, the same command goes on from here."
    )


def keep_curve_of(store: ArtifactStore, train: Train, shares: Sequence[float]) -> None:
    """Keep the curve of a pruned training from its highest rung, which will be removed."""
    found = [artifact for share in sorted(shares) if share < 1.0 and (artifact := store.get(to_share(train, share))) is not None]
    with suppress(StoreError):
        if found:
            keep_pruned_curve(store, train.key, read_curve(store, found[-1].record.place, within=f"{CHECKPOINT}/"))


def drop_below(store: ArtifactStore, train: Train, share: float, shares: Sequence[float]) -> None:
    """Remove the rungs of a training below a share."""
    for lower in shares:
        artifact = store.get(to_share(train, lower)) if lower < share else None
        if artifact is not None:
            with suppress(StoreError, OSError):
                store.drop(artifact)


def drop_left(store: ArtifactStore, trials: Mapping[int, SearchTrial], trains: Mapping[int, Train], shares: Sequence[float]) -> None:
    """Remove rungs left by an earlier submission that was killed."""
    left = set()
    for number, trial in trials.items():
        is_over = trial.state in ("finished", "pruned")
        done = 1.0 if is_over else max((rung.share for rung in trial.rungs), default=0.0)
        left |= {to_share(trains[number], share).key for share in shares if share < done}
    with suppress(StoreError, OSError):
        for artifact in store.artifacts("rung") if left else ():
            if artifact.key in left:
                store.drop(artifact)


ALL_TRIED = "all trials are made"


Watch = Callable[[Sequence[SearchEvent]], None]


class Conductor:
    """One search. Its decisions depend only on its recorded events: after a restart it decides the same.

    Args:
        context: with the `shares` of the search.
        watch: takes all recorded events whenever there is a new one.
        clock: None for `steady_clock()`.
        at_once: stages that run at the same time.
        until: end of this submission by the clock, in place of the budget's hours; the caller keeps time for the finalists.
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
        self._size: int | None = None  # of the file of this search's lines, after the last one written here
        self.reason: str | None = None

    @property
    def record(self) -> SearchRecord:
        """All recorded events as a record."""
        return self._state.record(self.planned.recipe.name)

    def trial(self, number: int) -> SearchTrial:
        """Return a trial's state."""
        return self._state.trials[number]

    def line(self, number: int) -> str:
        """Return a trial's state as a line."""
        trial = self.trial(number)
        is_best = trial.state == "finished" and trial.dev == self._state.best_dev(trial.method)
        return trial_line(trial, self.planned.recipe.methods[trial.method].title or trial.method, is_best=is_best)

    @property
    def hours_left(self) -> float | None:
        """Hours for trials, without the finalists' part; None without a budget of hours. The first trial at a rung has additional time."""
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
        """Resume what an earlier submission left, and record that this one begins.

        Raises:
            RecipeError: the budget is too small for one trial; nothing was started.
            StoreError: the store cannot be written, or is too small for the finalists.
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
        """Return the next trial; None if there is none: the search is over, or ends with the running trials."""
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
        """Record that a trial has reached a share of its training; return True if it goes on.

        Args:
            found: its score at the share; None to read it from the store.

        Raises:
            RecipeError: by the first measured speed, the budget is too small for one trial.
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
        """Record that a trial failed."""
        self._end(number, "failed", error=named(error))

    def choose(self) -> tuple[Finalist, ...]:
        """Record and return the best finished trials on dev of each method, with the reason for the end of the search."""
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
        """Record that this submission ends here, unless the last record failed: another process may run the search now."""
        if self._can_note:
            self._note(SubmissionSeen(at=self._clock()))

    def _settled(self, trial: SearchTrial) -> bool:
        """End a running trial if its last rung ends it: the search was stopped between the rung and the decision."""
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
            keep_curve_of(store, train, shares)  # before the record: a viewer of the trial reads its curve
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
        """Apply an event to the state and the suggesters."""
        self._state.take(event)
        if isinstance(event, RungReached | TrialEnded):
            self._proposals.learn(event)
