"""`search:` of a recipe, how it becomes stages, and the recipe that `sentdist tune` writes."""

from __future__ import annotations

from typing import Any

import pytest

from sentdist.corpora.own import OwnSection
from sentdist.errors import RecipeError
from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.search import Axis
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.suggestions import PlannedSearch, searched
from sentdist.recipe.tune_recipe import TUNABLE, TuneRequest, hours_of, search_values, training_values
from tests.support.planning import FixedResolver, plan_of, small_recipe, small_values

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


def test_a_lattice_spells_each_value_in_one_way() -> None:
    lattice = Axis(log=(1e-6, 1e-4), steps=5).values
    assert lattice == (1e-6, 3.16228e-6, 1e-5, 3.16228e-5, 1e-4)
    assert Axis(uniform=(0.0, 1.0), steps=4).values == (0.0, 0.333333, 0.666667, 1.0)
    assert Axis(integers=(2, 5)).values == (2, 3, 4, 5)
    assert Axis(uniform=(0.0, 1.0)).values is None
    assert Axis(uniform=(0.0, 1.0)).at(0.25) == 0.25


def test_a_search_that_cannot_be_is_refused() -> None:
    for changes, said in [
        ({"samples": 0}, r"search\.samples: found 0; expected greater than or equal to 1"),
        ({"halving": {"rungs": [0.5, 0.5, 1.0]}}, "expected increasing shares of a training, the last one 1"),
        ({"metric": "stsb"}, 'search.metric: found "stsb"; expected dev'),
        ({"space": {"training.learning_rate": {"log": [1e-4, 1e-6]}}}, "expected the lower bound first"),
        ({"space": {"training.learning_rate": {"log": [0.0, 1e-6]}}}, "expected bounds above 0"),
        ({"space": {"training.learning_rate": {}}}, "expected one of choice, uniform, log, integers"),
        ({"space": {"training.learning_rate": {"choice": [1], "log": [1, 2]}}}, "found choice and log; expected one of"),
        ({"space": {"methods.rcl.phis": {"choice": [[0.1], [0.1]]}}}, "expected each value once"),
        ({"space": {"methods.rcl.phis": {"choice": [[0.1], [0.2]], "steps": 3}}}, "steps: has no effect on choice"),
        ({"space": {"selection.every_fraction": {"uniform": [0.1, 0.2]}}}, '"selection" is not one of encoder, corpus'),
        ({"suggest": "grid"}, "space.methods.rcl.objective.regulator_weight: has unlimited values"),
        ({"suggest": "random", "samples": None, "budget": None}, "found neither samples nor a budget"),
        ({"budget": {}}, "expected hours, samples or sentences"),
        ({"suggest": "bayes"}, "found 'bayes'; expected 'grid', 'random', 'quasi_random' or 'tpe'"),
    ]:
        with pytest.raises(RecipeError, match=said):
            small_recipe(search=SEARCH | changes)


def test_a_search_that_does_not_fit_its_recipe_is_refused() -> None:
    for changes, said in [
        ({"selection": None}, "search: found no selection; expected one, because a search maximizes its dev score"),
        ({"sweep": {"training.batch_size": [32, 64]}}, "search: found beside sweep"),
        ({"confirm_seeds": 2, "baseline": "fine_tuned"}, "confirm_seeds: has an effect only"),
        ({"methods": {"base": {}}, "sweep": {}}, '"rcl" is not one of base'),
        ({"methods": {"rcl": {"objective": {"name": "info_nce"}, "select": False}}}, r"methods\.rcl\.select: has no place in a search"),
        ({"methods": {"rcl": {"objective": {"name": "info_nce"}}, "two": {"of": "rcl"}}}, r"methods\.two\.of: has no place in a search"),
    ]:
        with pytest.raises(RecipeError, match=said):
            small_recipe(search=SEARCH, **changes)


SPACE: dict[str, Json] = {
    "training.learning_rate": {"log": [1e-6, 1e-4], "steps": 9},
    "methods.rcl.phis": {"choice": [[0.01], [0.01, 0.02]]},
}


def planned(space: Json, *, changes: dict[str, Json] | None = None, **search: Json) -> PlannedSearch:
    values = small_values(search={"samples": 4, "space": space, "suggest": "random"} | search)
    values["selection"] = {"task": "stsb-dev", "every_fraction": 0.1}
    return searched(recipe_from_values(values | (changes or {}), where="small.yaml"), FixedResolver())


def test_a_field_without_effect_on_a_method_is_said_once_and_not_multiplied() -> None:
    changes: dict[str, Json] = {"methods": {
        "one": {"objective": {"name": "info_nce", "temperature": 1.0}}, "two": {"objective": {"name": "info_nce", "temperature": 0.1}, "training": {"learning_rate": 1e-5}},
    }}  # fmt: skip
    found = planned({"training.learning_rate": {"choice": [1e-5, 1e-4]}}, changes=changes)
    assert found.fields == {"one": ("training.learning_rate",), "two": ()}
    assert found.num_trials("two") == 1
    assert found.notes == (
        "search.space.training.learning_rate has no effect on two: it adds no trials there.",
        "two has no field to search: one trial.",
    )


def test_the_plan_of_finalists_has_the_references_and_all_seeds() -> None:
    search = planned(SPACE, changes={"seeds": [0, 1]})
    plan = search.plan([("rcl", {"methods.rcl.phis": [0.01]}), ("fine_tuned", {"training.learning_rate": 1e-5})])
    assert [trial.name for trial in plan.trials] == [
        "base", "fine_tuned (learning_rate=1e-05) · seed 0", "fine_tuned (learning_rate=1e-05) · seed 1",
        "rcl (phis={0.01}) · seed 0", "rcl (phis={0.01}) · seed 1",
    ]  # fmt: skip


def test_who_a_search_is_does_not_depend_on_how_long_it_goes() -> None:
    one = planned(SPACE)
    assert one.identity == planned(SPACE, samples=64, budget={"hours": 1}, finalists=2).identity
    others = [planned(SPACE, seed=1), planned(SPACE, suggest="tpe"), planned(SPACE, changes={"training": {"batch_size": 32}})]
    assert len({one.identity, *(other.identity for other in others)}) == 4


def test_a_space_that_cannot_be_trained_is_refused_while_planning() -> None:
    for space, said in [
        ({"training.lerning_rate": {"log": [1e-6, 1e-4]}}, r'training\.lerning_rate: unknown key; did you mean "learning_rate"'),
        ({"training.learning_rate": {"uniform": [-1.0, 1.0]}}, r"training\.learning_rate: found -1\.0; expected greater than 0"),
        ({"training.batch_size": {"choice": [64, 20_000]}}, "20000 rows per batch, 10000 in the corpus"),
        ({"methods.rlc.phis": {"choice": [[0.1], [0.2]]}}, 'search.space.methods.rlc.phis: "rlc" is not one of base, fine_tuned'),
        ({"methods.rcl.title": {"choice": ["a", "b"]}}, "search.space.methods.rcl.title: found values that lead to the same trainings"),
    ]:
        with pytest.raises(RecipeError, match=said):
            planned(space)


def test_a_test_set_by_another_name_or_in_part_chooses_nothing() -> None:
    for selection in [{"task": "sts=sts/sts12"}, {"task": "sts12", "limit": 500}, {"task": "stsb-dev+sts12"}]:
        with pytest.raises(RecipeError, match=r"found sts12, which evaluation\.tasks scores as a test set"):
            planned(SPACE, changes={"selection": selection, "evaluation": {"tasks": ["sts"]}})


def test_rungs_that_end_at_one_dev_score_are_refused() -> None:
    assert planned(SPACE, halving={"rungs": [0.1, 0.3, 1.0]}).search.shares == (0.1, 0.3, 1.0)
    often: Json = {"selection": {"task": "stsb-dev", "every_fraction": 0.04}}  # 0.28 of 25 scores is 7.000000000000001 in floats
    assert planned(SPACE, halving={"rungs": [0.28, 0.32, 1.0]}, changes=often).search.shares == (0.28, 0.32, 1.0)
    with pytest.raises(RecipeError, match=r"found 0\.1 and 0\.3, with 2 dev scores per training: both end at the same one"):
        planned(SPACE, halving={"rungs": [0.1, 0.3, 1.0]}, changes={"selection": {"task": "stsb-dev", "every_fraction": 0.5}})


def request(**changes: Any) -> TuneRequest:
    given: dict[str, Any] = {
        "name": "tune-my file", "file": "my.csv", "shape": "pairs", "num_rows": 1000, "num_apart": 1000, "corpus": {},
        "held_out": {"dev": 0.0, "test": 0.3, "near": None}, "encoders": [("minilm-l6", None)], "hours": 0.5,
    }  # fmt: skip
    return TuneRequest(**(given | changes))


def values(**changes: Any) -> dict[str, Any]:
    return search_values(request(**changes))


def test_batches_are_no_larger_than_rows_without_a_text_in_common() -> None:
    """Each anchor stands in as many rows as it has negatives, and in one of a batch: 64 of 48 anchors were tried, and failed."""
    for num_apart, sizes in [(1000, [16, 32, 64]), (63, [16, 32]), (31, None)]:
        found = values(shape="triplets", num_apart=num_apart)
        assert found["search"]["space"].get("training.batch_size") == ({"choice": sizes} if sizes else None)
        with pytest.raises(RecipeError, match="1000 rows to train on, 15 without a text in common"):
            values(num_apart=15)


OF_SHAPE = {"triplets": {"negative": "other"}, "graded": {"score": "likeness"}}


def test_each_shape_has_methods_that_can_be_trained_on_it() -> None:
    for shape, methods in [
        ("pairs", ["contrastive", "symmetric"]),
        ("triplets", ["contrastive", "symmetric", "margin"]),
        ("graded", ["ranking", "regression"]),
    ]:
        recipe = recipe_from_values(values(shape=shape, corpus={"columns": OF_SHAPE.get(shape, {})}), where="tune")
        assert [name for name, method in recipe.methods.items() if method.objective] == methods and set(methods) <= set(TUNABLE)
        assert {trial.method for trial in plan_of(recipe).trials} >= {"untouched"}
        assert recipe.search is not None and recipe.search.budget is not None and recipe.search.budget.hours == 0.5
        assert all(path.startswith("training.") or path.split(".")[1] in methods for path in recipe.search.space)
        first = searched(recipe, FixedResolver()).own_values
        assert all(first[path] in (axis.values or ()) for path, axis in recipe.search.space.items()), (
            "the default settings can be tried first"
        )


def test_a_training_has_one_method_no_dev_rows_and_the_values_of_a_suggestion() -> None:
    for methods, kept in [([], "contrastive"), (["rcl"], "rcl"), (["symmetric", "rcl"], "symmetric")]:
        asked = request(methods=methods)
        suggestion = {"training.epochs": 3, f"methods.{kept}.objective.temperature": 0.1}
        recipe = recipe_from_values(training_values(asked, suggestion=suggestion, seeds=[0, 1], limit=64), where="training")
        assert [name for name, method in recipe.methods.items() if method.reported and method.objective] == [kept]
        assert recipe.training.epochs == 3 and recipe.methods[kept].objective.temperature == 0.1 and list(recipe.seeds) == [0, 1]
        assert recipe.selection is None and recipe.search is None
        assert isinstance(recipe.corpus, OwnSection) and recipe.corpus.held_out.dev == 0.0 and recipe.corpus.limit == 64
        trials = plan_of(recipe).trials
        assert {trial.method for trial in trials} == {"untouched", kept} and asked.untouched_of(kept) == "untouched"


def test_rcl_is_tuned_where_it_is_asked_for() -> None:
    """Over its φ sets and weight; its entropy encoders are the same ones in every suggestion."""
    recipe = recipe_from_values(values(methods=["contrastive", "rcl"], num_rows=100), where="tune")
    assert [name for name, method in recipe.methods.items() if method.reported] == ["untouched", "contrastive", "rcl"]
    planned = searched(recipe, FixedResolver())
    assert set(planned.axes("rcl")) >= {"methods.rcl.phis", "methods.rcl.objective.regulator_weight", "training.learning_rate"}
    assert "methods.rcl.phis" not in planned.axes("contrastive")
    trainings = [planned.train("rcl", {"training.learning_rate": rate, "methods.rcl.phis": [0.01]}) for rate in (5e-6, 8e-5)]
    banks = [{stage.key for stage in topological((training,)) if stage.kind == "bank"} for training in trainings]
    assert trainings[0].key != trainings[1].key
    assert banks[0] == banks[1] and len(banks[0]) == 1
    several = recipe_from_values(values(encoders=[("minilm-l6", None), ("owner/name", "c" * 40)], methods=["rcl"]), where="tune")
    assert [several.methods[name].bank for name in ("rcl-1", "rcl-2")] == ["entropy-1", "entropy-2"]


def test_times_are_read_as_people_write_them() -> None:
    for budget, hours in [("30m", 0.5), ("2h", 2.0), ("90s", 0.025), ("1.5h", 1.5), ("1d", 24.0)]:
        assert hours_of(budget) == pytest.approx(hours)


def test_what_is_no_time_is_refused() -> None:
    for budget in ["", "30", "m", "0m", "-1h", "1w", "30 minutes"]:
        with pytest.raises(RecipeError, match="30m, 2h"):
            hours_of(budget)
