"""Whether a search can come to anything within its budget, told before it starts."""

from __future__ import annotations

from sentdist.errors import RecipeError
from sentdist.execution.searching.prices import Forecasts
from sentdist.plan.suggestions import Searched


def check_budget(planned: Searched, forecasts: Forecasts) -> None:
    """Refuse, before anything starts, a budget in which no trial comes to its end.

    Raises:
        RecipeError: with what one trial takes.
    """
    budget = planned.search.budget
    if budget is None:
        return
    for method in planned.methods:
        train = planned.train(method, planned.first(method))
        needed, seconds = forecasts.sentences(train), forecasts.seconds(train)
        if budget.sentences is not None and needed > budget.sentences:
            raise RecipeError(
                where=f"{planned.recipe.name}: search.budget.sentences",
                found=f"{budget.sentences:,}, where one trial of {method} trains on {needed:,}",
                expected="room for a trial of each method", remedy="Raise the budget, or train on less: nothing was started.",
            )  # fmt: skip
        if budget.hours is not None and seconds is not None and seconds > 3600 * budget.hours:
            raise RecipeError(
                where=f"{planned.recipe.name}: search.budget.hours",
                found=f"{budget.hours:g}, where one trial of {method} takes about {seconds / 3600:.2g} (at the speed of earlier runs)",
                expected="time for a trial of each method", remedy="Raise the budget, or train on less: nothing was started.",
            )  # fmt: skip
