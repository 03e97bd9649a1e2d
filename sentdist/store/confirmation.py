"""Which cell of a finished sweep its dev scores chose, and the recipe that trains it again with seeds that chose nothing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from sentdist.plan.dotted import with_path
from sentdist.plan.recipe import Recipe, recipe_from_values
from sentdist.plan.stage import Json
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The cell of the highest mean dev score among `num_cells`, the baseline's left out. dev: that mean, × 100."""

    cell: str
    method: str
    params: Mapping[str, Json]
    dev: float
    num_cells: int


def confirmed_name(sweep: str) -> str:
    """The name of the sweep of fresh seeds."""
    return f"{sweep}-confirmed"


def chosen_by_dev(sweep: SweepRecord, records: Mapping[str, Record]) -> Choice | None:
    """What dev chose among the cells whose trainings all have a dev score; None where no cell has."""
    found: dict[str, list[float]] = {}
    for cell in dict.fromkeys(trial.cell for trial in sweep.trials if trial.method != sweep.baseline and trial.train is not None):
        scores = [_dev_score(str(trial.train), records) for trial in sweep.trials if trial.cell == cell]
        known = [score for score in scores if score is not None]
        if known and len(known) == len(scores):
            found[cell] = known
    if not found:
        return None
    best = max(found, key=lambda cell: statistics.mean(found[cell]))
    trial = next(trial for trial in sweep.trials if trial.cell == best)
    return Choice(cell=best, method=trial.method, params=trial.params, dev=statistics.mean(found[best]), num_cells=len(found))


def confirmation(sweep: SweepRecord, records: Mapping[str, Record]) -> Recipe | None:
    """The chosen cell and the baseline, at the cell's point of the grid, with `confirm_seeds` seeds that the recipe has not;
    None where the recipe asks for none, or dev chose nothing.

    Methods that only these two build on stay, unreported.
    """
    recipe = recipe_from_values(sweep.recipe, where=f"sweep {sweep.name}")
    choice = chosen_by_dev(sweep, records) if recipe.confirm_seeds else None
    if choice is None:
        return None
    values = dict(sweep.recipe)
    for path, value in choice.params.items():
        values = with_path(values, path, value, where=f"sweep.{path}")
    first = max(recipe.seeds) + 1
    methods: Json = {
        name: method.model_dump(mode="json", exclude_unset=True) | {"reported": name in (choice.method, sweep.baseline)}
        for name, method in recipe_from_values(values, where=f"sweep {sweep.name}").methods.items()
    }
    values |= {
        "name": confirmed_name(sweep.name),
        "about": f"{choice.cell}, which dev chose among {choice.num_cells} cells of {sweep.name}, with seeds that chose nothing.",
        "methods": methods,
        "headline": choice.method,
        "seeds": list(range(first, first + recipe.confirm_seeds)),
        "sweep": {},
        "confirm_seeds": 0,
    }
    return recipe_from_values(values, where=f"sweep {sweep.name}, confirmed")


def _dev_score(train: str, records: Mapping[str, Record]) -> float | None:
    score = records[train].results.get("best_dev_score") if train in records else None
    return float(score) if isinstance(score, int | float) else None
