"""Run a recipe: its search, its trials, and fresh seeds that confirm the choice on dev; build plans in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sentdist.errors import SentdistError, counted, named
from sentdist.recipe.stage import Stage
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.recipe.unroll import Plan
from sentdist.run.events import StageEvent, progress_event
from sentdist.run.plan_facts import Show, SweepProgress, disk_estimate, progress_of
from sentdist.run.sweep_end import SweepSummary, TrialOutcome, overlaps_not_counted
from sentdist.stages.context import Context
from sentdist.stages.devices import check_precisions
from sentdist.stages.local import build_past_failures
from sentdist.stages.planning.planned import planned_recipe
from sentdist.stages.text_stages import build_overlaps
from sentdist.store.searches import SearchRecord
from sentdist.store.store import Artifact
from sentdist.store.sweep import begin_sweep, confirmation, load_sweep, sweep_record
from sentdist.text import PrintLine
from sentdist.tracking.tracker import Tracker

if TYPE_CHECKING:
    from sentdist.learning.checkpoint import DevScore
    from sentdist.learning.loop import StepReport
    from sentdist.recipe.stage import Json
    from sentdist.run.searching.conductor import Watch
    from sentdist.stages.rungs import Listener
    from sentdist.stages.train import TrainSession
    from sentdist.store.store import ArtifactStore


class Backend(Protocol):
    """Runs searches and builds plans. Implementations import lazily: torch, Ray and Tune take seconds."""

    def search(
        self,
        planned: PlannedSearch,
        context: Context,
        *,
        print_line: PrintLine,
        watch: Watch | None = None,
        tracker: Tracker | None = None,
        until: float | None = None,
    ) -> SearchRecord:
        """Run a search to its end; see `search_in_process`."""
        ...

    def build(self, plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
        """Build all trials of a plan; see `build_locally`."""
        ...

    def end(self, sweep: str, because: BaseException) -> None:
        """Called by `show`: raise the error out of `build`, or make `build` stop the sweep and return."""
        ...


class LocalBackend(Backend):
    """One stage after another, without Ray."""

    def search(
        self,
        planned: PlannedSearch,
        context: Context,
        *,
        print_line: PrintLine,
        watch: Watch | None = None,
        tracker: Tracker | None = None,
        until: float | None = None,
    ) -> SearchRecord:
        from sentdist.run.searching.in_process import search_in_process

        return search_in_process(planned, context, print_line=print_line, watch=watch, tracker=tracker, until=until)

    def build(self, plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
        return build_locally(plan, context, print_line=print_line, show=show)

    def end(self, sweep: str, because: BaseException) -> None:
        raise because


@dataclass(frozen=True)
class RayBackend(Backend):
    """The cluster that RAY_ADDRESS names."""

    tracking: str | None  # address of an MLflow server that records what is built; None for none

    def search(
        self,
        planned: PlannedSearch,
        context: Context,
        *,
        print_line: PrintLine,
        watch: Watch | None = None,
        tracker: Tracker | None = None,
        until: float | None = None,
    ) -> SearchRecord:
        from sentdist.run.searching.on_cluster import search_on_cluster

        return search_on_cluster(planned, context, print_line=print_line, watch=watch, tracker=tracker, until=until)

    def build(self, plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
        from sentdist.run.sweep import run_on_cluster

        return run_on_cluster(plan, context, tracking=self.tracking, print_line=print_line, show=show)

    def end(self, sweep: str, because: BaseException) -> None:
        from sentdist.run.client import stop_sweeps

        stop_sweeps(sweep)


# Entered while a plan is built: takes its lines and, where it shows progress, its progress.
Display = Callable[[], AbstractContextManager[tuple[PrintLine, "Show | None"]]]


@dataclass(frozen=True, kw_only=True)
class FinishedSearch:
    """A finished search."""

    planned: PlannedSearch
    record: SearchRecord
    plan: Plan  # what is scored on test: finalists with all seeds, and rows that are not trained

    @property
    def is_well(self) -> bool:
        """True if no trial failed."""
        return all(trial.state != "failed" for trial in self.record.trials)


@dataclass(frozen=True, kw_only=True)
class BuiltPlan:
    """A plan that has been built, how its trials ended, and the search that it comes from."""

    plan: Plan
    summary: SweepSummary
    search: FinishedSearch | None = None

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self.plan.recipe.name

    @property
    def is_well(self) -> bool:
        """True if no trial of the plan or its search failed."""
        return not self.summary.failures and (self.search is None or self.search.is_well)


def build_recipe(
    asked: Plan | PlannedSearch,
    context: Context,
    data: Path | None,
    workplace: Backend,
    *,
    print_line: PrintLine,
    display: Display | None = None,
    tracking: str | None = None,
) -> Iterator[BuiltPlan]:
    """Build the plan of a recipe; then, with `confirm_seeds`, train the cell chosen on dev with fresh seeds.

    Args:
        data: data root, as used for the plan.
        print_line: takes lines of progress.
        display: takes the lines and the progress of plans; None for print_line.
        tracking: MLflow server that shows a search.

    Raises:
        SentdistError: an error that ends a search, or one that concerns all trials of a plan.
    """

    def build(plan: Plan, context: Context) -> SweepSummary:
        with nullcontext((print_line, None)) if display is None else display() as (print_built, show):
            return workplace.build(plan, context, print_line=print_built, show=show)

    if isinstance(asked, PlannedSearch):
        search = _finished_search(asked, context, workplace, print_line, tracking)
        plan = search.plan
    else:
        search, plan = None, asked
    summary = build(plan, context)
    yield BuiltPlan(plan=plan, summary=summary, search=search)
    if summary.was_stopped:
        return
    sweep = load_sweep(context.store, plan.recipe.name)
    recipe = confirmation(sweep, sweep.records(context.store))
    if recipe is not None:
        print_line(f"Dev has chosen: {recipe.about}")
        fresh, its_context = planned_recipe(recipe, store=context.store.root, data=data)
        yield BuiltPlan(plan=fresh, summary=build(fresh, its_context))


def _finished_search(
    planned: PlannedSearch, context: Context, workplace: Backend, print_line: PrintLine, tracking: str | None
) -> FinishedSearch:
    for note in planned.notes:
        print_line(note)
    print_line(finalists_line(planned, context))
    record = searched(planned, context, workplace, print_line, tracking)
    cells = {seed for finalist in record.finalists for seed in finalist.cells}
    seeds = [seed for seed in planned.recipe.seeds if seed in cells] or None
    plan = planned.plan([(finalist.method, finalist.suggestion) for finalist in record.finalists], seeds=seeds)
    return FinishedSearch(planned=planned, record=record, plan=plan)


def searched(
    planned: PlannedSearch,
    context: Context,
    workplace: Backend,
    print_line: PrintLine,
    tracking: str | None,
    *,
    until: float | None = None,
) -> SearchRecord:
    """Run a search to its end, shown live by an MLflow server if there is one. until: see `Conductor`."""
    tracker = Tracker(tracking, context.store)
    watch = partial(tracker.watch_search, planned.recipe.name)
    try:
        return workplace.search(planned, context, print_line=print_line, watch=watch, tracker=tracker, until=until)
    finally:
        tracker.finish_search()
        for warning in tracker.warnings:
            print_line(f"tracking: {warning}")


def finalists_line(planned: PlannedSearch, context: Context) -> str:
    """Return a line on the trainings after the search; a budget of hours includes them."""
    from sentdist.run.searching.budgets import Finalists, Forecasts

    price = Finalists(planned, Forecasts(planned, context.store)).price
    budget = planned.search.budget
    within = "" if budget is None or budget.hours is None else "; the budget includes it, with fewer seeds if it does not fit"
    return f"What dev chooses, {counted(len(planned.recipe.seeds), 'seed')}: {price.line}{within}."


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one trial. scores: main score of each task × 100 by its name, and each measure by `task.measure`; None if undefined."""

    method: str
    seed: int | None  # None where it makes no difference
    fold: int | None  # None where it makes no difference
    params: Mapping[str, Json]  # values of the grid or search that make a difference
    scores: Mapping[str, float | None]
    encoder: str | None  # key of the trained encoder, for `Encoder` with the same store; None if none was trained


def outcomes(plan: Plan, store: ArtifactStore) -> Iterator[Outcome]:
    """Yield the outcome of each trial of a plan whose stages are all in the store."""
    trials, places = sweep_record(plan).trials, {stage.key: stage.place for stage in plan.stages}
    records = {key: artifact.record for key in (trial.key for trial in trials) if (artifact := store.at(places[key]))}
    for trial in trials:
        yield Outcome(
            method=trial.method,
            seed=trial.seed,
            fold=trial.fold,
            params=trial.params,
            scores=numbers(records[trial.key].results),
            encoder=trial.train,
        )


def numbers(results: Mapping[str, Json]) -> dict[str, float | None]:
    """Return the results of a record that are scores."""
    return {name: value for name, value in results.items() if value is None or isinstance(value, int | float)}


def build_locally(plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
    """Build all trials of a plan in this process and record them as a sweep. Failed trials do not stop the others.

    Args:
        print_line: takes each line of progress.
        show: takes the progress as a whole.

    Raises:
        SentdistError: an error that concerns all trials: a missing device, a store that is read-only or too small.
    """
    started = time.perf_counter()
    before = context.store.get_all(plan.stages).keys()
    missing = frozenset(stage.key for stage in plan.stages) - before
    estimate = disk_estimate(plan, context, missing)
    if missing:  # a complete store may be read-only
        context.store.check_writable(needed_bytes=estimate.least)
        context = _with_devices(plan, context, missing, print_line)
    if warning := estimate.warning(context.store.free_bytes()):
        print_line(warning)
    begin_sweep(context.store, sweep_record(plan), print_line)
    progress = progress_of(plan, missing)

    def failed(stage: Stage, error: SentdistError) -> None:
        print_line(progress.line(StageEvent.of(stage, "failed", message=named(error))))

    errors = build_past_failures(plan.stages, context, listen=local_listener(progress, print_line, show=show), failed=failed)
    try:
        build_overlaps(plan, context)
    except SentdistError as error:  # the sweep is over, and its summary is still to be printed
        print_line(overlaps_not_counted(error))
    outcomes = {trial.key: TrialOutcome(key=trial.key, name=trial.name, error=errors.get(trial.key)) for trial in plan.trials}
    summary = SweepSummary.of(plan, context.store, before, outcomes, time.perf_counter() - started)
    for line in summary.lines if summary.failures else ():
        print_line(line)
    return summary


def _with_devices(plan: Plan, context: Context, missing: frozenset[str], print_line: PrintLine) -> Context:
    from sentdist.stages.devices import left_out_here, old_gpu_here, on_this_machine  # torch takes seconds

    runtime, devices = on_this_machine(context.runtime)
    check_precisions((stage for stage in plan.stages if stage.key in missing), runtime, old_gpu=old_gpu_here(runtime))
    print_line(f"{plan.recipe.name}: {counted(len(missing), 'stage')} to build in this process, {devices}{left_out_here(runtime)}")
    return replace(context, runtime=runtime)


def local_listener(progress: SweepProgress, print_line: PrintLine, *, show: Show | None = None) -> Listener:
    """Return a listener that prints every tenth of a training, every dev score and every finished stage."""

    def listen(stage: Stage, session: TrainSession | None, event: StepReport | DevScore | Artifact) -> None:
        reported = progress_event(stage, session, event)
        if reported is not None:
            print_line(progress.line(reported))
            if show is not None:
                show(progress)

    return listen
