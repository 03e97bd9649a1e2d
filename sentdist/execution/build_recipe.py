"""All that a recipe asks for, built: its search, its trials, and the fresh seeds that confirm what dev chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import counted
from sentdist.execution.workplaces import Workplace
from sentdist.plan.suggestions import PlannedSearch
from sentdist.plan.unroll import Plan
from sentdist.print_line import PrintLine
from sentdist.stages.context import Context
from sentdist.stages.planning.planned import planned_recipe
from sentdist.store.confirmation import confirmation
from sentdist.store.searches import SearchRecord
from sentdist.store.sweep import load_sweep

if TYPE_CHECKING:
    from sentdist.execution.progress import Show
    from sentdist.execution.sweep_end import SweepSummary


# Opened for the time in which a plan is built: takes its lines, and its progress where somebody looks at that.
Display = Callable[[], AbstractContextManager[tuple[PrintLine, "Show | None"]]]


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
    workplace: Workplace,
    *,
    print_line: PrintLine,
    display: Display | None = None,
    tracking: str | None = None,
) -> Iterator[BuiltPlan]:
    """The plan of a recipe, built; then, where the recipe has `confirm_seeds`, what trains the cell that dev chose with fresh seeds.

    data: the data root, where the confirmation finds what the plan has found. print_line: takes the lines of progress; display: those of
    plans that are built, None: print_line does. tracking: an MLflow server that shows a search.

    Raises:
        SentdistError: what ends a search, and what concerns all trials of a plan.
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
    planned: PlannedSearch, context: Context, workplace: Workplace, print_line: PrintLine, tracking: str | None
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
    workplace: Workplace,
    print_line: PrintLine,
    tracking: str | None,
    *,
    until: float | None = None,
) -> SearchRecord:
    """A search that is over, shown meanwhile by an MLflow server if there is one. until: see `Conductor`."""
    if tracking is None:
        return workplace.search(planned, context, print_line=print_line, until=until)
    from sentdist.tracking.live_search import LiveSearch

    with LiveSearch(tracking, context.store, name=planned.recipe.name, identity=planned.identity, print_line=print_line) as live:
        return workplace.search(planned, context, print_line=print_line, watch=live.watch, tracker=live.tracker, until=until)


def finalists_line(planned: PlannedSearch, context: Context) -> str:
    """What comes after the search; of a budget of hours, it is part."""
    from sentdist.execution.searching.budgets import Finalists
    from sentdist.execution.searching.prices import Forecasts

    price = Finalists(planned, Forecasts(planned, context.store)).price
    budget = planned.search.budget
    within = "" if budget is None or budget.hours is None else "; the budget counts it, and where it does not fit there are fewer seeds"
    return f"What dev chooses, {counted(len(planned.recipe.seeds), 'seed')}: {price.line}{within}."
