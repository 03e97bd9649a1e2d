"""Search on Optuna: ask for trials, report their rungs, prune, tell; rungs and trainings are stages, and the studies are in the store."""

from __future__ import annotations

import itertools
import json
import math
import time
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from sentdist.errors import ResourceError, SentdistError, StoreError, counted, duration, named
from sentdist.recipe.search import Axis, short
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train, to_share
from sentdist.recipe.suggestions import PlannedSearch, Suggestion, suggestion_text
from sentdist.stages.context import Context
from sentdist.stages.rung_records import CHECKPOINT, RungScore, rung_score
from sentdist.store.searches import (
    ALL_TRIED,
    ERROR,
    RETRY,
    RUNGS,
    TRIAL,
    Finalist,
    SearchRecord,
    SearchRung,
    SearchTrial,
    keep_pruned_curve,
    open_journal,
    read_curve,
    search_record,
    study_name,
    trial_facts,
)
from sentdist.store.store import ArtifactStore
from sentdist.text import PrintLine
from sentdist.tracking.tracker import Tracker

SKIPPED = "skipped"  # user attribute of a suggestion that became no trial: why
MOST_SKIPPED = 200  # suggestions in a row that were tried before or cannot be trained; then a method has no more


def distribution(axis: Axis) -> BaseDistribution:
    """Return the values of a field for Optuna: choices as JSON, steps by their place, which keeps neighbours near."""
    if axis.choice is not None:
        return CategoricalDistribution(tuple(json.dumps(value) for value in axis.choice))
    if axis.integers is not None:
        return IntDistribution(*axis.integers)
    if axis.values is not None:
        return IntDistribution(0, len(axis.values) - 1)
    bounds = axis.uniform or axis.log
    assert bounds is not None
    return FloatDistribution(*bounds, log=axis.log is not None)


def value_at(axis: Axis, found: Json) -> Json:
    """Return the value of a field for a parameter of Optuna's."""
    if axis.choice is not None:
        value: Json = json.loads(str(found))
        return value
    number = float(str(found))
    if axis.integers is not None:
        return int(number)
    return short(number) if axis.values is None else axis.values[int(number)]


def parameter(axis: Axis, value: Json) -> str | int | float | None:
    """Return Optuna's parameter for a value; None if it is not on the axis."""
    if axis.values is not None:
        if value not in axis.values:
            return None
        place = axis.values.index(value)
        return json.dumps(value) if axis.choice is not None else place if axis.integers is None else axis.integers[0] + place
    bounds = axis.uniform or axis.log
    assert bounds is not None
    return value if isinstance(value, int | float) and bounds[0] <= value <= bounds[1] else None


class Halving(BasePruner):
    """Asynchronous successive halving: a trial goes on if it is among the best `keep` of those that came to its rung before it.

    The rule is ASHA's promotion (Li et al. 2020, Algorithm 2), applied once, when a trial arrives; among few, the best goes on. Optuna's
    `SuccessiveHalvingPruner` has the same rule for `keep` = 1/n and rungs at powers of n only, and decides otherwise when asked again.
    """

    def __init__(self, keep: float) -> None:
        self._keep = keep

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        step = trial.last_step
        if step is None:
            return False
        arrived = study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.PRUNED, TrialState.COMPLETE))
        scores = [one.intermediate_values[step] for one in arrived if step in one.intermediate_values]
        better = sum(score > trial.intermediate_values[step] for score in scores)
        return better >= max(1, math.floor(self._keep * len(scores) + 1e-9))


@dataclass(frozen=True, kw_only=True)
class AskedTrial:
    """A trial to run."""

    number: int
    method: str
    suggestion: Suggestion
    train: Train
    trial: optuna.Trial


class SearchRun:
    """One search: `ask` for trials, report each with `arrive` or `fail`, then `choose`. Begins, or resumes what the store has of it.

    A trial that was running when an earlier submission ended, or that failed, is asked for again; the stages that it has built are found.
    Run one at a time, trials are therefore the same however often the search is interrupted.

    Args:
        context: with the `shares` of the search.
        tracker: shows the record after each change.
        until: end of this submission by `clock`; trainings that still run then are resumed by the next one.

    Raises:
        StoreError: the store cannot be written.
    """

    def __init__(
        self,
        planned: PlannedSearch,
        context: Context,
        tracker: Tracker,
        *,
        print_line: PrintLine,
        until: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # the sampler `qmc`, `constant_liar`
        context.store.check_writable()
        self.planned, self.context = planned, context
        self.reason: str | None = None  # why no trial is left to ask for
        self._search, self._name, self._shares = planned.search, planned.recipe.name, planned.search.shares
        self._tracker, self._print_line, self._until, self._clock = tracker, print_line, until, clock
        self._storage = open_journal(context.store, self._name)
        self._head = self._study(planned.identity)
        self._studies = {method: self._study(study_name(planned.identity, method)) for method in planned.methods}
        self._running: dict[int, AskedTrial] = {}
        self._exhausted: set[str] = set()
        before = self._head.user_attrs
        self._spent_before, self._since = float(before.get("spent_s", 0.0)), clock()
        now = time.time()
        about = {
            "recipe": planned.recipe.model_dump(mode="json", exclude_unset=True),
            "methods": {method: list(fields) for method, fields in planned.fields.items()},
            "began": before.get("began", now),
            "reason": None,
            "submitted": now,
        }
        for key, value in about.items():
            self._head.set_user_attr(key, value)
        left = sum(_enqueue_unfinished(study) for study in self._studies.values())
        if trials := self.record.trials:
            of_them = f", {counted(left, 'unfinished one')} among them" if left else ""
            print_line(f"{self._name}: goes on after {counted(len(trials), 'trial')}{of_them}")
        self._drop_left(trials)

    @property
    def record(self) -> SearchRecord:
        """The state of the search."""
        found = search_record(self._storage, self._name)
        assert found is not None, "it has begun"
        return found

    @property
    def is_time_up(self) -> bool:
        """True if `until` has passed."""
        return self._until is not None and self._clock() >= self._until

    def ask(self) -> AskedTrial | None:
        """Return the next trial; None if none is left, for `reason`."""
        if self.reason is None:
            self.reason = self._spent()
        if self.reason is not None:
            return None
        record = self.record
        waiting = {method for method, study in self._studies.items() if study.get_trials(deepcopy=False, states=(TrialState.WAITING,))}
        tried = {method: len(record.of_method(method)) for method in self._studies}
        limits = {method: self.planned.num_trials(method) for method in self._studies}
        for method in sorted(self._studies, key=lambda method: (method not in waiting, tried[method])):
            limit = limits[method]
            if method not in waiting and (method in self._exhausted or (limit is not None and tried[method] >= limit)):
                continue
            asked = self._asked(method, record)
            if asked is not None:
                self._running[asked.number] = asked
                self._changed()
                return asked
            self._exhausted.add(method)
            self._print_line(f"{method}: nothing new is suggested; it ends with {counted(tried[method], 'trial')}")
        self.reason = ALL_TRIED
        return None

    def arrive(self, number: int, share: float, found: RungScore | None = None) -> bool:
        """Record that a trial has reached a share of its training; return True if it goes on.

        Args:
            found: its score at the share; None to read it from the store.
        """
        asked = self._running[number]
        rungs: list[dict[str, Json]] = asked.trial.user_attrs.get(RUNGS, [])
        if share in [rung["share"] for rung in rungs]:  # its process was lost and started over
            return True
        stage = to_share(asked.train, share)
        found = found or rung_score(asked.train, share, self.context)
        if found is None or found.dev is None or found.last is None:
            at_share, expected = f"no dev score at {100 * share:g} % of the training", "similarities that differ"
            self.fail(number, ResourceError(where=f"trial {number}", found=at_share, expected=expected, remedy="The others go on."))
            return False
        rung = SearchRung(
            share=share, place=stage.place, step=found.step, dev=found.dev, last_dev=found.last, sentences=found.sentences,
            seconds=found.seconds,
        )  # fmt: skip
        asked.trial.set_user_attr(RUNGS, [*rungs, rung.model_dump()])
        asked.trial.report(found.dev, step=self._shares.index(share))
        _drop_below(self.context.store, asked.train, share, self._shares)
        if share >= 1.0:
            self._tell(asked, TrialState.COMPLETE, dev=found.dev)
            return False
        if asked.trial.should_prune():
            _keep_curve(self.context.store, asked.train, stage.place)  # before it is told: a viewer of the trial reads its curve
            self._tell(asked, TrialState.PRUNED)
            _drop_below(self.context.store, asked.train, 1.0, self._shares)
            return False
        self._changed(number)
        return True

    def fail(self, number: int, error: BaseException) -> None:
        """Record that a trial failed; the next submission tries it again."""
        asked = self._running[number]
        asked.trial.set_user_attr(ERROR, named(error))
        self._tell(asked, TrialState.FAIL)

    def choose(self) -> SearchRecord:
        """Choose the best finished trials on dev of each method, and return the record of the search."""
        found, record = [], self.record
        for method in self.planned.methods:
            done = [trial for trial in record.of_method(method) if trial.state == "finished" and trial.dev is not None]
            best = sorted(done, key=lambda trial: (-(trial.dev or 0.0), trial.number))[: self._search.finalists]
            for place, trial in enumerate(best, start=1):
                cells = {seed: self.planned.scores(method, trial.suggestion, seed=seed).key for seed in self.planned.recipe.seeds}
                what, dev = trial.suggestion, trial.dev or 0.0
                found.append(Finalist(number=trial.number, method=method, place=place, suggestion=what, dev=dev, cells=cells))
        self._head.set_user_attr("finalists", [finalist.model_dump(mode="json") for finalist in found])
        self._head.set_user_attr("reason", self.reason or self._spent() or ALL_TRIED)
        self._changed()
        return self.record

    def _study(self, name: str) -> Study:
        halving = self._search.halving
        return optuna.create_study(
            storage=self._storage,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            sampler=RandomSampler(),  # replaced with each suggestion
            pruner=NopPruner() if halving is None else Halving(halving.keep),
        )

    def _spent(self) -> str | None:
        """Why no further trial may begin, by the budget; None if one may."""
        budget = self._search.budget
        if self.is_time_up:
            return "the time is up"
        if budget is None:
            return None
        if budget.hours is not None and self._spent_s >= 3600 * budget.hours:
            return f"the budget of {duration(3600 * budget.hours)} is spent"
        record = self.record
        if budget.sentences is not None and record.spent_sentences >= budget.sentences:
            return f"the budget of {budget.sentences:,} sentences is spent"
        if budget.samples is not None and len(record.trials) >= budget.samples:
            is_left = any(study.get_trials(deepcopy=False, states=(TrialState.WAITING,)) for study in self._studies.values())
            return None if is_left else f"the budget of {counted(budget.samples, 'trial')} is spent"
        return None

    @property
    def _spent_s(self) -> float:
        return self._spent_before + self._clock() - self._since

    def _asked(self, method: str, record: SearchRecord) -> AskedTrial | None:
        """Ask Optuna for a trial of a method; None if it suggests nothing new."""
        study, axes = self._studies[method], self.planned.axes(method)
        distributions = {path: distribution(axis) for path, axis in axes.items()}
        tried = {trial.train for trial in record.of_method(method)}
        for _ in range(MOST_SKIPPED):
            known = study.get_trials(deepcopy=False)
            place = sum(not {TRIAL, SKIPPED}.isdisjoint(trial.user_attrs) for trial in known)  # of the suggestion, retries apart
            if not any(trial.state is TrialState.WAITING for trial in known):
                queued = self._queued(method, place)
                if queued is None and self._search.suggest == "grid":
                    return None
                if queued is not None:
                    study.enqueue_trial(queued)
            study.sampler = self._sampler(place)
            trial = study.ask(distributions)
            suggestion = {path: value_at(axis, trial.params[path]) for path, axis in axes.items()}
            again = trial.user_attrs.get(RETRY)
            try:
                train = self.planned.train(method, suggestion)
            except SentdistError as error:  # values that do not go together
                self._print_line(f"{method}: {suggestion_text(suggestion)} cannot be trained and is left out: {error}")
                trial.set_user_attr(SKIPPED, named(error))
            else:
                if again is not None or train.key not in tried:
                    number = max((one.number for one in record.trials), default=-1) + 1 if again is None else again["number"]
                    if again is None:
                        trial.set_user_attr(TRIAL, {"number": number, "suggestion": suggestion, "train": train.key})
                    return AskedTrial(number=number, method=method, suggestion=suggestion, train=train, trial=trial)
                trial.set_user_attr(SKIPPED, "tried before")
            study.tell(trial, state=TrialState.FAIL)
        return None

    def _queued(self, method: str, place: int) -> dict[str, Json] | None:
        """The parameters of the suggestion at this place where they are known: those of a grid; first of TPE the recipe's own values."""
        axes = self.planned.axes(method)
        if self._search.suggest == "grid":
            point = next(itertools.islice(itertools.product(*(axis.values or () for axis in axes.values())), place, None), None)
            return None if point is None else {path: parameter(axes[path], value) for path, value in zip(axes, point, strict=True)}
        if self._search.suggest == "tpe" and place == 0:
            own: dict[str, Json] = {path: parameter(axis, self.planned.own_values[path]) for path, axis in axes.items()}
            return None if None in own.values() else own
        return None

    def _sampler(self, place: int) -> BaseSampler:
        """Return a sampler with a seed for one suggestion: it draws the same after a restart."""
        seed = zlib.crc32(f"{self._search.seed} {place}".encode())
        match self._search.suggest:
            case "tpe":  # Bergstra et al. 2011; running trials count as bad, so concurrent ones spread out
                return TPESampler(seed=seed, constant_liar=True)
            case "quasi_random":  # Sobol points; the first is random
                return QMCSampler(
                    seed=self._search.seed, scramble=True, independent_sampler=RandomSampler(seed=seed), warn_independent_sampling=False
                )
            case "grid" | "random":
                return RandomSampler(seed=seed)

    def _tell(self, asked: AskedTrial, state: TrialState, *, dev: float | None = None) -> None:
        self._studies[asked.method].tell(asked.trial, dev, state=state)
        del self._running[asked.number]
        self._changed(asked.number)

    def _changed(self, number: int | None = None) -> None:
        self._head.set_user_attr("spent_s", round(self._spent_s, 1))
        record = self.record
        if number is not None:
            self._print_line(self._line(record, next(trial for trial in record.trials if trial.number == number)))
        self._tracker.watch_search(record)

    def _line(self, record: SearchRecord, trial: SearchTrial) -> str:
        where = (
            f"trial {trial.number}  {self.planned.recipe.methods[trial.method].title or trial.method} ({suggestion_text(trial.suggestion)})"
        )
        if trial.state == "failed" or not trial.rungs:
            return f"{where}: FAILED: {trial.error}"
        devs = [one.dev or 0.0 for one in record.of_method(trial.method) if one.state == "finished"]
        best = " (best so far)" if trial.state == "finished" and trial.dev == max(devs) else ""
        share = "" if trial.state == "finished" else f" at {100 * trial.rungs[-1].share:g} %"
        ended = {"pruned": ", pruned", "running": ", goes on"}.get(trial.state, "")
        return f"{where}: dev {trial.dev:.2f}{share}{best}{ended}, {trial.seconds:.0f} s"

    def _drop_left(self, trials: tuple[SearchTrial, ...]) -> None:
        """Remove rungs that a killed submission left."""
        left = set()
        for trial in trials:
            if trial.state in ("finished", "pruned"):
                train = self.planned.train(trial.method, trial.suggestion)
                left |= {to_share(train, share).key for share in self._shares if share < 1.0}
        with suppress(StoreError, OSError):
            for artifact in self.context.store.artifacts("rung") if left else ():
                if artifact.key in left:
                    self.context.store.drop(artifact)


def _enqueue_unfinished(study: Study) -> int:
    """Enqueue the trials that failed or were interrupted again, with their numbers; return how many there are."""
    latest: dict[int, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False):
        if trial.state is TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
        if (about := trial_facts(trial)) is not None:
            latest[about["number"]] = trial
    again = [trial for trial in latest.values() if trial.state in (TrialState.RUNNING, TrialState.FAIL)]
    for trial in again:
        study.enqueue_trial(trial.params, user_attrs={RETRY: trial_facts(trial)})
    return len(again)


def _keep_curve(store: ArtifactStore, train: Train, place: str) -> None:
    """Keep the curve of a pruned training from its last rung, which will be removed."""
    with suppress(StoreError):
        keep_pruned_curve(store, train.key, read_curve(store, place, within=f"{CHECKPOINT}/"))


def _drop_below(store: ArtifactStore, train: Train, share: float, shares: tuple[float, ...]) -> None:
    """Remove the rungs of a training below a share."""
    for lower in shares:
        artifact = store.get(to_share(train, lower)) if lower < share else None
        if artifact is not None:
            with suppress(StoreError, OSError):
                store.drop(artifact)
