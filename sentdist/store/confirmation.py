"""The recipe that trains what dev chose in a finished sweep again, with seeds that chose nothing."""

from __future__ import annotations

from collections.abc import Mapping

from sentdist.errors import counted
from sentdist.plan.dotted import with_path
from sentdist.plan.method_checks import inputs_of
from sentdist.plan.recipe import Recipe, recipe_from_values
from sentdist.plan.sections import CHANGED_BY_METHODS, Method
from sentdist.plan.stage import Json
from sentdist.store.chosen import challengers, chosen_of_baseline
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord


def confirmed_name(sweep: str) -> str:
    """The name of the sweep of fresh seeds."""
    return f"{sweep[:90]}-confirmed"  # no name has more than 100 letters


def confirmation(sweep: SweepRecord, records: Mapping[str, Record]) -> Recipe | None:
    """What dev chose, and what it chose of the baseline, with `confirm_seeds` seeds that the recipe has not; None where the recipe asks
    for none, or dev chose nothing.

    The baseline has the values of the grid that dev chose for it, where it can have its own; else those of the cell. Methods that only
    these two build on stay, unreported.
    """
    recipe = recipe_from_values(sweep.recipe, where=f"sweep {sweep.name}")
    cells = challengers(sweep, records) if recipe.confirm_seeds else []
    if not cells:
        return None
    choice, trial = cells[0], cells[0].trials[0]
    rival = chosen_of_baseline(sweep, records)
    theirs = {} if rival is None else rival.trials[0].params
    own = None if rival is None else _own_fields(recipe.methods, rival.trials[0], beside=trial)
    values = dict(sweep.recipe)
    for path, value in {**theirs, **trial.params, **(own or {})}.items():
        values = with_path(values, path, value, where=f"sweep.{path}")
    first = max(recipe.seeds) + 1
    methods: Json = {
        name: method.model_dump(mode="json", exclude_unset=True) | {"reported": name in (trial.method, sweep.baseline)}
        for name, method in recipe_from_values(values, where=f"sweep {sweep.name}").methods.items()
    }
    about = f"{choice.label}, best on dev of {counted(len(cells), 'cell')} of {sweep.name} beside the baseline"
    also = f", and {rival.label}, best of the baseline's" if rival is not None and theirs and own is not None else ""
    values |= {
        "name": confirmed_name(sweep.name),
        "about": f"{about}{also}, with seeds that chose nothing.",
        "methods": methods,
        "headline": trial.method,
        "seeds": list(range(first, first + recipe.confirm_seeds)),
        "sweep": {},
        "confirm_seeds": 0,
    }
    return recipe_from_values(values, where=f"sweep {sweep.name}, confirmed")


def _own_fields(methods: Mapping[str, Method], baseline: TrialRecord, *, beside: TrialRecord) -> dict[str, Json] | None:
    """The fields of a recipe that give a baseline the grid's values of its trial where another method's trial has others; None where
    nothing does: a method is needed by both, or methods cannot change that section (a corpus).

    Each method that the baseline needs is changed, but for those that say their own.
    """
    needed = inputs_of(baseline.method, methods)
    apart = needed.isdisjoint(inputs_of(beside.method, methods))
    found: dict[str, Json] = {}
    for path, value in baseline.params.items():
        section, _, field = path.partition(".")
        if beside.params.get(path, value) == value:
            continue
        if not apart or section not in CHANGED_BY_METHODS:
            return None
        heirs = (name for name in sorted(needed) if methods[name].objective is not None and field not in getattr(methods[name], section))
        found |= {f"methods.{name}.{path}": value for name in heirs}
    return found
