"""Recipes planned and built in this process, as a Python program asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentdist.api.encoders import Place
from sentdist.errors import DataError
from sentdist.execution.outcomes import Outcome, outcomes
from sentdist.inference.given import given_data, given_store
from sentdist.inference.opening import store_root
from sentdist.plan.grid import check_takes_effect
from sentdist.plan.recipe import Recipe
from sentdist.plan.unroll import Plan
from sentdist.print_line import PrintLine

AnyRecipe = Recipe | str | Path


def plan(recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None) -> Plan:
    """What a recipe comes to: its `trials`, each ending in scores, and all `stages`, each once, inputs before users. Nothing is started.

    recipe: a `Recipe`, or the path of one. overrides: fields to change, as `--set`: `["training.batch_size=32"]`.

    Raises:
        RecipeError, DataError, EncoderError: what can be known to be wrong before any work starts; a recipe with `search`, which suggests
            its trials as it goes.
    """
    from sentdist.stages.planning.planned import planned_trials

    return planned_trials(_recipe(recipe, overrides), store=store_root(given_store(store)), data=given_data(data))[0]


def run(
    recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None, print_line: PrintLine = print
) -> list[Outcome]:
    """Build what a recipe needs without its grid, in this process; as `sentdist run --local`. What the store has is not built again.

    recipe, overrides: as in `plan`. print_line: takes each line of progress.
    Of a recipe with `search`, the outcomes are those of what dev chose, trained with all seeds, and of the rows that are not trained; with
    `confirm_seeds`, those of the fresh seeds come last.

    Raises:
        RecipeError, DataError, EncoderError: mistakes, before anything is built.
        StoreError: no room on the disk. TrainingDiverged: a loss or gradient that is not finite. The error of the first trial that fails is
            raised once the others are built.
    """
    return _build(_recipe(recipe, overrides, has_grid=False), store, data, print_line)


def sweep(
    recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None, print_line: PrintLine = print
) -> list[Outcome]:
    """Build all trials of a recipe, its grid included, in this process; as `sentdist sweep --local`. Arguments and errors as in `run`."""
    return _build(_recipe(recipe, overrides), store, data, print_line)


def _build(recipe: Recipe, store: Place, data: Place, print_line: PrintLine) -> list[Outcome]:
    from sentdist.stages.planning.planned import requested

    found = given_data(data)
    place = store_root(given_store(store))
    asked, context = requested(recipe, store=place, data=found)  # before torch is loaded: a mistake is reported at once

    from sentdist.execution.build_recipe import build_recipe
    from sentdist.execution.workplaces import ThisProcess

    for line in asked.notes if isinstance(asked, Plan) else ():
        print_line(line)
    done = build_recipe(asked, context, found, ThisProcess(), print_line=print_line)
    ended: list[Outcome] = []
    for one in done:
        for failure in one.summary.failures:
            assert failure.error is not None, "it is among the failures"
            raise failure.error
        ended += outcomes(one.plan, context.store)
    return ended


def _recipe(recipe: AnyRecipe, overrides: Sequence[str], *, has_grid: bool = True) -> Recipe:
    found = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe, overrides)
    found = found if has_grid else found.model_copy(update={"sweep": {}})
    if not isinstance(recipe, Recipe):
        check_takes_effect(found, overrides)
        return found
    if overrides:
        raise DataError(
            where="overrides", found="overrides beside a Recipe", expected="a path", remedy="Give them to Recipe.load, which checks both."
        )
    return found
