"""Recipes with `search:`: what their plan says, and what is printed at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sentdist.cli.printing import empty_table, open_console
from sentdist.errors import counted, duration

if TYPE_CHECKING:
    from sentdist.execution.build_recipe import FinishedSearch
    from sentdist.plan.suggestions import PlannedSearch
    from sentdist.stages.context import Context


def print_space(planned: PlannedSearch, context: Context) -> None:
    """What a search will try: the space of each method, how many trials, what one of them takes."""
    from sentdist.execution.build_recipe import finalists_line
    from sentdist.execution.searching.prices import Forecasts
    from sentdist.store.searches import find_search

    search, forecasts, console = planned.search, Forecasts(planned, context.store), open_console()
    table = empty_table(f"{planned.recipe.name}: a search by {search.suggest}", "method", "trials", "fields", "values")
    for method in planned.methods:
        trials = planned.num_trials(method)
        fields = [(path, axis.line) for path, axis in planned.axes(method).items()] or [("–", "–")]
        table.add_row(method, "until the budget ends" if trials is None else str(trials), *fields[0])
        for path, values in fields[1:]:
            table.add_row("", "", path, values)
    console.print(table)
    if search.halving is not None:
        rungs = " and ".join(f"{100 * share:g} %" for share in search.shares)
        console.print(f"Each training is looked at after {rungs}; the best {100 * search.halving.keep:.0f} % go on.", highlight=False)
    for method in planned.methods:
        train = planned.train(method, planned.first(method))
        seconds = forecasts.seconds(train)
        took = "no speed is known yet" if seconds is None else f"about {duration(seconds)}"
        sentences = forecasts.sentences(train)
        console.print(f"One trial of {method}: {sentences:,} sentences to train on, {took}.", highlight=False, soft_wrap=True)
    console.print(finalists_line(planned, context), highlight=False, soft_wrap=True)
    for note in planned.notes:
        console.print(note, highlight=False, soft_wrap=True)
    before = find_search(context.store, planned.recipe.name)
    if before is not None and before.identity == planned.identity:
        console.print(f"In the store: {counted(len(before.trials), 'trial')} of this search; it goes on from there.", highlight=False)


def print_choice(found: FinishedSearch) -> None:
    """What dev chose for each method, and what it took."""
    from sentdist.execution.searching.lines import without_finalist
    from sentdist.plan.suggestions import suggestion_text

    planned, record = found.planned, found.record
    table = empty_table(
        f"{record.name}: what dev chose ({record.reason})", "method", "place", "settings", "dev", "its price", "trials", "all trials"
    )
    trials = {trial.number: trial for trial in record.trials}
    for finalist in record.finalists:
        of_method = record.of_method(finalist.method)
        ended = [f"{sum(one.state == state for one in of_method)} {state}" for state in ("finished", "pruned", "failed")]
        table.add_row(
            planned.recipe.methods[finalist.method].title or finalist.method,
            str(finalist.place),
            suggestion_text(finalist.suggestion),
            f"{finalist.dev:.2f}",
            f"{trials[finalist.number].paid_s:.0f} s",
            ", ".join(one for one in ended if not one.startswith("0 ")) if finalist.place == 1 else "",
            f"{sum(one.paid_s for one in of_method):.0f} s" if finalist.place == 1 else "",
        )
    open_console().print(table)
    for method in planned.methods:
        if not any(finalist.method == method for finalist in record.finalists):
            typer.echo(without_finalist(method, planned, record))
