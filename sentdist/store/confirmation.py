"""The recipe that trains what dev chose in a finished sweep again, with seeds that chose nothing."""

from __future__ import annotations

from collections.abc import Mapping

from sentdist.errors import counted
from sentdist.plan.dotted import with_path
from sentdist.plan.recipe import Recipe, recipe_from_values
from sentdist.plan.stage import Json
from sentdist.store.chosen import challengers
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord


def confirmed_name(sweep: str) -> str:
    """The name of the sweep of fresh seeds."""
    return f"{sweep}-confirmed"


def confirmation(sweep: SweepRecord, records: Mapping[str, Record]) -> Recipe | None:
    """The chosen cell and the baseline, at the cell's point of the grid, with `confirm_seeds` seeds that the recipe has not;
    None where the recipe asks for none, or dev chose nothing.

    Methods that only these two build on stay, unreported.
    """
    recipe = recipe_from_values(sweep.recipe, where=f"sweep {sweep.name}")
    cells = challengers(sweep, records) if recipe.confirm_seeds else []
    if not cells:
        return None
    choice, trial = cells[0], cells[0].trials[0]
    values = dict(sweep.recipe)
    for path, value in trial.params.items():
        values = with_path(values, path, value, where=f"sweep.{path}")
    first = max(recipe.seeds) + 1
    methods: Json = {
        name: method.model_dump(mode="json", exclude_unset=True) | {"reported": name in (trial.method, sweep.baseline)}
        for name, method in recipe_from_values(values, where=f"sweep {sweep.name}").methods.items()
    }
    values |= {
        "name": confirmed_name(sweep.name),
        "about": f"{choice.label}, best on dev of {counted(len(cells), 'cell')} of {sweep.name} beside the baseline, with seeds that chose nothing.",
        "methods": methods,
        "headline": trial.method,
        "seeds": list(range(first, first + recipe.confirm_seeds)),
        "sweep": {},
        "confirm_seeds": 0,
    }
    return recipe_from_values(values, where=f"sweep {sweep.name}, confirmed")
