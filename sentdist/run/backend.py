"""Run a recipe on one of two backends, this process or a Ray cluster: its search, its trials, then fresh seeds that confirm the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sentdist.recipe.suggestions import PlannedSearch
from sentdist.recipe.unroll import Plan
from sentdist.run.local import build_locally, search_in_process
from sentdist.run.progress import Show, SweepSummary
from sentdist.stages.context import Context
from sentdist.stages.planned import planned_recipe
from sentdist.store.searches import SearchRecord
from sentdist.store.sweep import confirmation, load_sweep, sweep_record
from sentdist.text import PrintLine
from sentdist.tracking.tracker import Tracker

if TYPE_CHECKING:
    from sentdist.recipe.stage import Json
    from sentdist.store.store import ArtifactStore


class Backend(Protocol):
    """Runs searches and builds plans. Implementations import lazily: torch, Ray and Tune take seconds."""

    def search(
        self, planned: PlannedSearch, context: Context, tracker: Tracker, *, print_line: PrintLine, until: float | None
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
        self, planned: PlannedSearch, context: Context, tracker: Tracker, *, print_line: PrintLine, until: float | None
    ) -> SearchRecord:
        return search_in_process(planned, context, tracker, print_line=print_line, until=until)

    def build(self, plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
        return build_locally(plan, context, print_line=print_line, show=show)

    def end(self, sweep: str, because: BaseException) -> None:
        raise because


@dataclass(frozen=True)
class RayBackend(Backend):
    """The cluster that RAY_ADDRESS names."""

    tracking: str | None  # address of an MLflow server that records what is built; None for none

    def search(
        self, planned: PlannedSearch, context: Context, tracker: Tracker, *, print_line: PrintLine, until: float | None
    ) -> SearchRecord:
        from sentdist.run.sweep import search_on_cluster

        return search_on_cluster(planned, context, tracker, print_line=print_line, until=until)

    def build(self, plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
        from sentdist.run.connection import connect_to_drive
        from sentdist.run.sweep import run_sweep

        connect_to_drive()
        return run_sweep(plan, context, tracker=Tracker(self.tracking, context.store), print_line=print_line, show=show)

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
    record = searched(planned, context, workplace, print_line, tracking)
    plan = planned.plan([(finalist.method, finalist.suggestion) for finalist in record.finalists])
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
    """Run a search to its end, shown live by an MLflow server if there is one. until: see `SearchRun`."""
    tracker = Tracker(tracking, context.store)
    try:
        return workplace.search(planned, context, tracker, print_line=print_line, until=until)
    finally:
        tracker.finish_search()
        for warning in tracker.warnings:
            print_line(f"tracking: {warning}")


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
