"""`search:` of a recipe: what it accepts, how it spells values, what it refuses and in which words."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from sentdist.errors import RecipeError
from sentdist.plan.schema import recipe_schema
from sentdist.plan.search import Axis
from sentdist.plan.stage import Json
from tests.support.planning import small_recipe, small_values

SEARCH: dict[str, Json] = {
    "suggest": "tpe",
    "samples": 32,
    "space": {
        "training.learning_rate": {"log": [1e-6, 1e-4], "steps": 9},
        "methods.rcl.phis": {"choice": [[0.01], [0.01, 0.02], [-0.1, 0.1]]},
        "methods.rcl.objective.regulator_weight": {"uniform": [0.0, 1.0]},
    },
    "metric": "dev",
    "halving": {"rungs": [0.1, 0.3, 1.0], "keep": 0.33},
    "budget": {"hours": 2},
    "finalists": 3,
}


def test_the_issue_s_own_example_is_a_recipe() -> None:
    recipe = small_recipe(search=SEARCH)
    assert recipe.search is not None
    assert recipe.search.shares == (0.1, 0.3, 1.0)
    assert recipe.search.space["methods.rcl.phis"].values == ([0.01], [0.01, 0.02], [-0.1, 0.1])
    Draft202012Validator(recipe_schema()).validate(small_values(search=SEARCH))


def test_a_lattice_spells_each_value_in_one_way() -> None:
    lattice = Axis(log=(1e-6, 1e-4), steps=5).values
    assert lattice == (1e-6, 3.16228e-6, 1e-5, 3.16228e-5, 1e-4)
    assert Axis(uniform=(0.0, 1.0), steps=4).values == (0.0, 0.333333, 0.666667, 1.0)
    assert Axis(integers=(2, 5)).values == (2, 3, 4, 5)
    assert Axis(uniform=(0.0, 1.0)).values is None
    assert Axis(uniform=(0.0, 1.0)).at(0.25) == 0.25


def test_a_search_that_cannot_be_is_refused() -> None:
    for changes, said in [
        ({"samples": 0}, r"search\.samples: found 0; expected 1 or more"),
        ({"halving": {"rungs": [0.5, 0.5, 1.0]}}, "expected rising shares of a training, the last one 1"),
        ({"metric": "stsb"}, 'search.metric: found "stsb"; expected dev'),
        ({"space": {"training.learning_rate": {"log": [1e-4, 1e-6]}}}, "expected the lower bound first"),
        ({"space": {"training.learning_rate": {"log": [0.0, 1e-6]}}}, "expected bounds above 0"),
        ({"space": {"training.learning_rate": {}}}, "expected one of choice, uniform, log, integers"),
        ({"space": {"training.learning_rate": {"choice": [1], "log": [1, 2]}}}, "found choice and log; expected one of"),
        ({"space": {"methods.rcl.phis": {"choice": [[0.1], [0.1]]}}}, "expected each value once"),
        ({"space": {"methods.rcl.phis": {"choice": [[0.1], [0.2]], "steps": 3}}}, "steps: has no effect on choice"),
        ({"space": {"selection.every_fraction": {"uniform": [0.1, 0.2]}}}, '"selection" is not one of encoder, corpus'),
        ({"suggest": "grid"}, "space.methods.rcl.objective.regulator_weight: has no end of values"),
        ({"suggest": "random", "samples": None, "budget": None}, "found neither samples nor a budget"),
        ({"budget": {}}, "expected hours, samples or sentences"),
        ({"suggest": "bayes"}, "found 'bayes'; expected one of grid, random, quasi_random, tpe"),
    ]:
        with pytest.raises(RecipeError, match=said):
            small_recipe(search=SEARCH | changes)


def test_a_search_that_does_not_fit_its_recipe_is_refused() -> None:
    for changes, said in [
        ({"selection": None}, "search: found no selection; expected one, for its dev score is what is searched for"),
        ({"sweep": {"training.batch_size": [32, 64]}}, "search: found beside sweep"),
        ({"confirm_seeds": 2, "baseline": "fine_tuned"}, "confirm_seeds: has no effect beside search"),
        ({"methods": {"base": {}}}, "search: found no reported method that is trained"),
        ({"methods": {"one": {"objective": {"name": "info_nce"}, "select": False}}}, r"methods\.one\.select: found false in a search"),
        ({"methods": {"one": {"objective": {"name": "info_nce"}}, "two": {"of": "one"}}}, r"methods\.two\.of: found in a search"),
    ]:
        with pytest.raises(RecipeError, match=said):
            small_recipe(search=SEARCH, **changes)
