"""Unrolling: which stages a recipe comes to, what trials share, and what a plan remarks."""

from __future__ import annotations

from collections import Counter

import pytest

from sentdist.errors import RecipeError
from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from tests.support.planning import plan_of, small_recipe, with_method

PAPER_SETS: list[Json] = [[round(0.01 * n, 2) for n in range(1, last + 1)] for last in range(1, 6)]


def _kinds(plan: Plan) -> Counter[str]:
    return Counter(stage.kind for stage in plan.stages)


def _refusal(**changes: Json) -> str:
    with pytest.raises(RecipeError) as caught:
        plan_of(small_recipe(**changes))
    return str(caught.value)


def test_another_seed_adds_only_what_it_changes() -> None:
    one, two = plan_of(small_recipe()), plan_of(small_recipe(seeds=[0, 1]))
    before, after = ({stage.key for stage in plan.stages} for plan in (one, two))
    assert before < after
    assert _kinds(two) - _kinds(one) == {"train": 4, "bank": 2, "scores": 2}


def test_a_method_with_a_seed_of_its_own_is_one_training_for_all_seeds() -> None:
    first: Json = {"objective": {"name": "info_nce"}, "seed": 7}
    second: Json = {"objective": {"name": "info_nce", "temperature": 0.5}, "start": "first"}
    plan = plan_of(recipe_from_values(with_method(first=first, second=second) | {"seeds": [0, 1, 2]}, where="x.yaml"))
    assert [trial.seed for trial in plan.trials if trial.method == "first"] == [7]
    assert [trial.seed for trial in plan.trials if trial.method == "second"] == [0, 1, 2]
    starts = {stage.start.key for stage in plan.stages if isinstance(stage, Train) and stage.start is not None}
    assert starts == {trial.scores.inputs[0].key for trial in plan.trials if trial.method == "first"}
    assert "base.seed: has no effect on the untouched checkpoint" in _refusal(methods={"base": {"seed": 0}})


PAIRS: Json = {"source": "nli/pairs", "columns": ["one", "two"]}


def _notes(objective: Json, **changes: Json) -> list[str]:
    return _beginnings(plan_of(small_recipe(methods={"tuned": {"objective": objective}}, **changes)).notes)


def _beginnings(notes: tuple[str, ...]) -> list[str]:
    return [" ".join(note.split()[:4]) for note in notes]


def test_hard_negatives_that_are_not_read_are_reported() -> None:
    assert _notes({"name": "mlm"}) == ["methods.tuned: mlm uses no"] and _notes({"name": "mlm"}, corpus=PAIRS) == []
    assert _notes({"name": "entropy", "phi": 0.01, "hard_negatives": False}) == [], "that is written"


def test_a_learning_rate_with_which_nothing_is_learned_is_reported() -> None:
    asked: Json = {"name": "info_nce", "temperature": 1.0}
    assert _notes(asked, training={"learning_rate": "2e5"}) == ["methods.tuned: learning_rate 200000 is"]
    assert _notes(asked, training={"learning_rate": 0.01}) == []
