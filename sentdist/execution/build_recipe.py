"""All that a recipe asks for, built: its search, its trials, and the fresh seeds that confirm what dev chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sentdist.errors import counted
from sentdist.plan.suggestions import PlannedSearch
from sentdist.plan.unroll import Plan
from sentdist.print_line import PrintLine
from sentdist.stages.context import Context
from sentdist.stages.planning.planned import planned_recipe
from sentdist.store.confirmation import confirmation
from sentdist.store.searches import SearchRecord
from sentdist.store.sweep import load_sweep

if TYPE_CHECKING:
    from sentdist.execution.searching.conductor import Watch
    from sentdist.execution.sweep_end import SweepSummary
    from sentdist.tracking.tracker import Tracker


class _Search(Protocol):
    """Carries out a search until its end: `search_in_process`, or `search_on_cluster` on the cluster that this process has joined."""

    def __call__(
        self, planned: PlannedSearch, context: Context, *, print_line: PrintLine, watch: Watch | None = None, tracker: Tracker | None = None
    ) -> SearchRecord: ...


@dataclass(frozen=True, kw_only=True)
class FinishedSearch:
    """A search that is over. plan: what is scored on test, finalists with all seeds and rows that are not trained."""

    planned: PlannedSearch
    record: SearchRecord
    plan: Plan

    @property
    def is_well(self) -> bool:
        """Whether no trial failed."""
        return all(trial.state != "failed" for trial in self.record.trials)


@dataclass(frozen=True, kw_only=True)
class BuiltPlan:
    """A plan that has been built. search: the search that it comes from. summary: how its trials ended."""

    plan: Plan
    summary: SweepSummary
    search: FinishedSearch | None = None

    @property
    def name(self) -> str:
        """The sweep's."""
        return self.plan.recipe.name

    @property
    def is_well(self) -> bool:
        """Whether nothing of it failed."""
        return not self.summary.failures and (self.search is None or self.search.is_well)


def build_recipe(
    asked: Plan | PlannedSearch,
    context: Context,
    data: Path | None,
    *,
    on_cluster: bool,
    build: Callable[[Plan, Context], SweepSummary],
    print_line: PrintLine,
    tracking: str | None = None,
) -> Iterator[BuiltPlan]:
    """The plan of a recipe, built; then, where the recipe has `confirm_seeds`, what trains the cell that dev chose with fresh seeds.

    on_cluster: whether a search runs on the cluster that this process has joined, or in this process. build: builds the trials of a plan.
    data: the data root, where the confirmation finds what the plan has found. tracking: an MLflow server that shows a search.

    Raises:
        SentdistError: what ends a search, and as `build`.
    """
    if isinstance(asked, PlannedSearch):
        search = _finished_search(asked, context, _search(on_cluster), print_line, tracking)
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


def _search(on_cluster: bool) -> _Search:
    if on_cluster:
        from sentdist.execution.searching.on_cluster import search_on_cluster  # Tune takes seconds

        return search_on_cluster
    from sentdist.execution.searching.in_process import search_in_process

    return search_in_process


def _finished_search(
    planned: PlannedSearch, context: Context, search: _Search, print_line: PrintLine, tracking: str | None
) -> FinishedSearch:
    for note in planned.notes:
        print_line(note)
    print_line(finalists_line(planned, context))
    if tracking is None:
        record = search(planned, context, print_line=print_line)
    else:
        from sentdist.tracking.live_search import LiveSearch

        with LiveSearch(tracking, context.store, name=planned.recipe.name, identity=planned.identity, print_line=print_line) as live:
            record = search(planned, context, print_line=print_line, watch=live.watch, tracker=live.tracker)
    cells = {seed for finalist in record.finalists for seed in finalist.cells}
    seeds = [seed for seed in planned.recipe.seeds if seed in cells] or None
    plan = planned.plan([(finalist.method, finalist.suggestion) for finalist in record.finalists], seeds=seeds)
    return FinishedSearch(planned=planned, record=record, plan=plan)


def finalists_line(planned: PlannedSearch, context: Context) -> str:
    """What comes after the search; of a budget of hours, it is part."""
    from sentdist.execution.searching.budgets import Finalists
    from sentdist.execution.searching.prices import Forecasts

    price = Finalists(planned, Forecasts(planned, context.store)).price
    budget = planned.search.budget
    within = "" if budget is None or budget.hours is None else "; the budget counts it, and where it does not fit there are fewer seeds"
    return f"What dev chooses, {counted(len(planned.recipe.seeds), 'seed')}: {price.line}{within}."
