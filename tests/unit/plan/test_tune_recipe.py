"""The recipe that `sentdist tune` writes: methods that the rows allow, a space that the planner accepts, times as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.corpora.own import OwnSection
from sentdist.plan.recipe import recipe_from_values, recipe_text
from sentdist.plan.stage import topological
from sentdist.plan.suggestions import searched
from sentdist.plan.tune_recipe import TUNABLE, TuneRequest, hours_of, search_values, training_values
from tests.support.planning import FixedResolver, plan_of


def request(**changes: Any) -> TuneRequest:
    given: dict[str, Any] = {
        "name": "tune-my file", "file": "my.csv", "shape": "pairs", "num_rows": 1000, "num_apart": 1000, "corpus": {"shape": "pairs"},
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
        with pytest.raises(RecipeError, match="15 different texts in a column of the 1000 rows to train on"):
            values(num_apart=15)


def test_each_shape_has_methods_that_can_be_trained_on_it() -> None:
    for shape, methods in [
        ("pairs", ["contrastive", "symmetric"]),
        ("faq", ["contrastive", "symmetric"]),
        ("triplets", ["contrastive", "symmetric", "margin"]),
        ("graded", ["ranking", "regression"]),
    ]:
        recipe = recipe_from_values(values(shape=shape, corpus={"shape": shape}), where="tune")
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


def test_several_encoders_have_methods_of_their_own() -> None:
    written = values(encoders=[("minilm-l6", None), ("owner/name", "c" * 40)], methods=["contrastive"])
    recipe = recipe_from_values(written, where="tune")
    assert list(recipe.methods) == ["untouched-1", "contrastive-1", "untouched-2", "contrastive-2"]
    checkpoints = {
        stage.encoder.checkpoint for trial in plan_of(recipe).trials for stage in [trial.scores.encoder] if hasattr(stage, "encoder")
    }
    assert checkpoints == {"minilm-l6", "owner/name"}
    assert "&id" not in recipe_text(written), "no value stands for two"


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


def test_a_small_file_has_small_batches() -> None:
    assert "training.batch_size" not in values(num_rows=40)["search"]["space"] and values(num_rows=40)["training"]["batch_size"] == 16
    with pytest.raises(RecipeError, match="10 rows to train on"):
        values(num_rows=10)


def test_times_are_read_as_people_write_them() -> None:
    for budget, hours in [("30m", 0.5), ("2h", 2.0), ("90s", 0.025), ("1.5h", 1.5), ("1d", 24.0)]:
        assert hours_of(budget) == pytest.approx(hours)


def test_what_is_no_time_is_refused() -> None:
    for budget in ["", "30", "m", "0m", "-1h", "1w", "30 minutes"]:
        with pytest.raises(RecipeError, match="30m, 2h"):
            hours_of(budget)
