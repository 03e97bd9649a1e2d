"""How a search becomes stages: the keys are those of a recipe in which the values were typed, and what cannot be is refused."""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.suggestions import PlannedSearch, searched
from tests.support.planning import FixedResolver, plan_of, small_values

SPACE: dict[str, Json] = {
    "training.learning_rate": {"log": [1e-6, 1e-4], "steps": 9},
    "methods.rcl.phis": {"choice": [[0.01], [0.01, 0.02]]},
}


def planned(space: Json, *, changes: dict[str, Json] | None = None, **search: Json) -> PlannedSearch:
    values = small_values(search={"samples": 4, "space": space, "suggest": "random"} | search)
    values["selection"] = {"task": "stsb-dev", "every_fraction": 0.1}
    return searched(recipe_from_values(values | (changes or {}), where="small.yaml"), FixedResolver())


def test_a_suggestion_is_the_recipe_with_these_values_typed() -> None:
    found = planned(SPACE).train("rcl", {"training.learning_rate": 3.16228e-05, "methods.rcl.phis": [0.01, 0.02]})
    values = small_values(training={"batch_size": 64, "learning_rate": 3.16228e-05}, selection={"task": "stsb-dev", "every_fraction": 0.1})
    typed = plan_of(recipe_from_values(values, where="typed"))
    assert found.key in {stage.key for stage in typed.stages if isinstance(stage, Train)}


def test_each_method_is_searched_over_the_fields_that_change_it() -> None:
    found = planned(SPACE)
    assert found.fields == {"fine_tuned": ("training.learning_rate",), "rcl": ("training.learning_rate", "methods.rcl.phis")}
    assert (found.size("fine_tuned"), found.size("rcl")) == (9, 18)
    assert (found.num_trials("fine_tuned"), found.references, found.notes) == (4, ("base",), ())


def test_a_field_without_effect_on_a_method_is_said_once_and_not_multiplied() -> None:
    changes: dict[str, Json] = {"methods": {
        "one": {"objective": {"name": "info_nce", "temperature": 1.0}}, "two": {"objective": {"name": "info_nce", "temperature": 0.1}, "training": {"learning_rate": 1e-5}},
    }}  # fmt: skip
    found = planned({"training.learning_rate": {"choice": [1e-5, 1e-4]}}, changes=changes)
    assert found.fields == {"one": ("training.learning_rate",), "two": ()}
    assert found.num_trials("two") == 1
    assert found.notes == (
        "search.space.training.learning_rate has no effect on two: it is not multiplied there.",
        "two has no field that is searched: one trial.",
    )


def test_a_field_that_has_an_effect_beside_one_value_of_another_is_searched() -> None:
    """Hard negatives are left out or not where rows have some."""
    for with_negatives in ["first", "last"]:
        pairs, triplets = ["sent0", "sent1"], ["sent0", "sent1", "hard_neg"]
        columns: Json = [triplets, pairs] if with_negatives == "first" else [pairs, triplets]  # type: ignore[list-item]
        hard_negatives = "methods.one.objective.hard_negatives"
        methods: Json = {"one": {"objective": {"name": "info_nce", "temperature": 0.05}}}
        found = planned({"corpus.columns": {"choice": columns}, hard_negatives: {"choice": [True, False]}}, changes={"methods": methods})
        assert found.fields == {"one": ("corpus.columns", hard_negatives)}


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
        ({"training.learning_rate": {"uniform": [-1.0, 1.0]}}, r"training\.learning_rate: found -1\.0; expected more than 0"),
        ({"training.batch_size": {"choice": [64, 20_000]}}, "20000 rows a batch, 10000 in the corpus"),
        ({"methods.rlc.phis": {"choice": [[0.1], [0.2]]}}, 'search.space.methods.rlc.phis: "rlc" is not one of base, fine_tuned'),
        ({"methods.rcl.title": {"choice": ["a", "b"]}}, "search.space.methods.rcl.title: found values that lead to the same trainings"),
    ]:
        with pytest.raises(RecipeError, match=said):
            planned(space)


def test_a_dev_set_that_is_reported_as_a_test_set_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"found stsb-dev, which evaluation\.tasks scores as a test set"):
        planned(SPACE, changes={"evaluation": {"tasks": ["sts", "stsb-dev"]}})


def test_a_test_set_by_another_name_or_in_part_chooses_nothing() -> None:
    for selection in [{"task": "sts=sts/sts12"}, {"task": "sts12", "limit": 500}, {"task": "stsb-dev+sts12"}]:
        with pytest.raises(RecipeError, match=r"found sts12, which evaluation\.tasks scores as a test set"):
            planned(SPACE, changes={"selection": selection, "evaluation": {"tasks": ["sts"]}})


def test_rungs_that_end_at_one_dev_score_are_refused() -> None:
    assert planned(SPACE, halving={"rungs": [0.1, 0.3, 1.0]}).search.shares == (0.1, 0.3, 1.0)
    often: Json = {"selection": {"task": "stsb-dev", "every_fraction": 0.04}}  # 0.28 of 25 scores is 7.000000000000001 in floats
    assert planned(SPACE, halving={"rungs": [0.28, 0.32, 1.0]}, changes=often).search.shares == (0.28, 0.32, 1.0)
    with pytest.raises(RecipeError, match=r"found 0\.1 and 0\.3, with 2 dev scores a training: both end at the same one"):
        planned(SPACE, halving={"rungs": [0.1, 0.3, 1.0]}, changes={"selection": {"task": "stsb-dev", "every_fraction": 0.5}})
