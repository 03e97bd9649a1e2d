"""What a recipe asks for, carried out, whoever asks: its search, its trials, and the fresh seeds that confirm what dev chose."""

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


class Searching(Protocol):
    """Carries out a search until its end: in this process, or on the cluster that it has joined."""

    def __call__(
        self, planned: PlannedSearch, context: Context, *, print_line: PrintLine, watch: Watch | None = None, tracker: Tracker | None = None
    ) -> SearchRecord: ...


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A search that is over. plan: what is scored on test, finalists with all seeds and rows that are not trained."""

    planned: PlannedSearch
    record: SearchRecord
    plan: Plan

    @property
    def is_well(self) -> bool:
        """Whether no trial failed."""
        return all(trial.state != "failed" for trial in self.record.trials)


@dataclass(frozen=True, kw_only=True)
class CarriedOut:
    """A plan that has been built. tuned: the search that it comes from. summary: how its trials ended."""

    plan: Plan
    summary: SweepSummary
    tuned: Tuned | None = None

    @property
    def name(self) -> str:
        """The sweep's."""
        return self.plan.recipe.name

    @property
    def is_well(self) -> bool:
        """Whether nothing of it failed."""
        return not self.summary.failures and (self.tuned is None or self.tuned.is_well)


def carry_out(
    asked: Plan | PlannedSearch,
    context: Context,
    data: Path | None,
    *,
    search: Searching,
    build: Callable[[Plan, Context], SweepSummary],
    print_line: PrintLine,
    tracking: str | None = None,
) -> Iterator[CarriedOut]:
    """The plan of a recipe, built; then, where the recipe has `confirm_seeds`, what trains the cell that dev chose with fresh seeds.

    search: `search_here` or `search_there`. data: the data root, where the confirmation finds what the plan has found. tracking: an MLflow
    server that shows a search.

    Raises:
        SentdistError: as `search` and `build`.
    """
    if isinstance(asked, PlannedSearch):
        tuned = _tuned(asked, context, search, print_line, tracking)
        plan = tuned.plan
    else:
        tuned, plan = None, asked
    summary = build(plan, context)
    yield CarriedOut(plan=plan, summary=summary, tuned=tuned)
    if summary.was_stopped:
        return
    sweep = load_sweep(context.store, plan.recipe.name)
    recipe = confirmation(sweep, sweep.records(context.store))
    if recipe is not None:
        print_line(f"Dev has chosen: {recipe.about}")
        fresh, its_context = planned_recipe(recipe, store=context.store.root, data=data)
        yield CarriedOut(plan=fresh, summary=build(fresh, its_context))


def search_here(
    planned: PlannedSearch, context: Context, *, print_line: PrintLine, watch: Watch | None = None, tracker: Tracker | None = None
) -> SearchRecord:
    """`search_in_process`, imported where there is a search."""
    from sentdist.execution.searching.in_process import search_in_process

    return search_in_process(planned, context, print_line=print_line, watch=watch, tracker=tracker)


def search_there(
    planned: PlannedSearch, context: Context, *, print_line: PrintLine, watch: Watch | None = None, tracker: Tracker | None = None
) -> SearchRecord:
    """`search_on_cluster`, imported where there is a search: Tune takes seconds."""
    from sentdist.execution.searching.on_cluster import search_on_cluster

    return search_on_cluster(planned, context, print_line=print_line, watch=watch, tracker=tracker)


def _tuned(planned: PlannedSearch, context: Context, search: Searching, print_line: PrintLine, tracking: str | None) -> Tuned:
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
    return Tuned(planned=planned, record=record, plan=plan)


def finalists_line(planned: PlannedSearch, context: Context) -> str:
    """What comes after the search; of a budget of hours, it is part."""
    from sentdist.execution.searching.budgets import Finalists
    from sentdist.execution.searching.prices import Forecasts

    price = Finalists(planned, Forecasts(planned, context.store)).price
    budget = planned.search.budget
    within = "" if budget is None or budget.hours is None else "; the budget counts it, and where it does not fit there are fewer seeds"
    return f"What dev chooses, {counted(len(planned.recipe.seeds), 'seed')}: {price.line}{within}."
