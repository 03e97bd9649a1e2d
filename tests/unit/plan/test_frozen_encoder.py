"""A recipe that trains the head alone: what it may say, and what has no meaning or no effect there."""

from __future__ import annotations

from typing import Any

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from tests.support.planning import plan_of, small_recipe
from tests.support.relations_data import ENTAILMENT, TWIN

SMOOTH: dict[str, Json] = {"name": "regression", "slope": 2.0, "threshold": 0.25}
NLI: Json = {"kind": "graded", "parts": [{"source": "nli/snli", "columns": ["premise", "hypothesis", "label"], "scale": "nli"}]}
PAIRS: Json = {"source": "pairs/some", "columns": ["anchor", "positive"]}
RELATIONS: Json = {"kind": "relations", "relations": [ENTAILMENT, TWIN]}
BY_RELATION: Json = {"relations": {"weights": {"entailment": 1.0}}}


def values(objective: Json, corpus: Json = PAIRS, **method: Json) -> dict[str, Json]:
    own: dict[str, Any] = {"objective": objective, "training": {"freeze_encoder": True}} | method
    return {"name": "small", "corpus": corpus, "evaluation": {"tasks": ["stsb"]}, "methods": {"m": own}}


def planned(given: dict[str, Json]) -> Train:
    (stage,) = (one for one in plan_of(recipe_from_values(given, where="small.yaml")).stages if isinstance(one, Train))
    return stage


def _sum(*terms: Json) -> Json:
    return {"name": "sum", "terms": list(terms)}


def test_what_learns_something_of_its_own_may_be_trained_alone() -> None:
    for objective, corpus in [
        (SMOOTH, NLI),
        ({"name": "rse"}, RELATIONS),
        ({"name": "symmetric_info_nce", "learn_temperature": True}, PAIRS),
        (_sum({"objective": {"name": "mlm"}}, {"objective": {"name": "info_nce"}, "projected": True}), PAIRS),
    ]:
        assert planned(values(objective, corpus)).training.freeze_encoder


def test_what_would_train_nothing_is_refused() -> None:
    for objective, corpus, message in [
        ({"name": "info_nce"}, PAIRS, r"training\.freeze_encoder with info_nce: found no parameters of its own, beside an encoder that is"),
        ({"name": "symmetric_info_nce"}, PAIRS, "freeze_encoder with symmetric_info_nce: found no parameters of its own"),
        ({"name": "auxiliary"}, PAIRS, "freeze_encoder with auxiliary: found entropy adversaries"),
        (_sum({"objective": {"name": "mlm"}}, {"objective": {"name": "info_nce"}}), PAIRS, "freeze_encoder with info_nce: found no param"),
    ]:
        with pytest.raises(RecipeError, match=message):
            planned(values(objective, corpus))


def test_equal_dev_scores_choose_no_checkpoint() -> None:
    chosen = values(SMOOTH, NLI) | {"selection": {"task": "stsb-dev"}}
    with pytest.raises(RecipeError, match=r"methods\.m\.select: found stsb-dev to choose a checkpoint of an encoder that is frozen"):
        planned(chosen)
    assert planned(values(SMOOTH, NLI, select=False) | {"selection": {"task": "stsb-dev"}}).selection is None


def test_a_view_that_relations_cannot_be_read_in_chooses_none_of_their_encoders() -> None:
    """It ended in a traceback of pydantic."""
    rse: Json = {"objective": {"name": "rse"}, "view": BY_RELATION}
    recipe = small_recipe(corpus=RELATIONS, selection={"task": "stsb-dev", "view": {"postprocess": "center"}}, methods={"rse": rse})
    with pytest.raises(RecipeError, match=r"selection\.view: found channels or postprocess beside methods\.rse\.view\.relations"):
        plan_of(recipe)


def test_scores_by_relation_choose_one_for_relations_are_what_is_trained() -> None:
    chosen = values({"name": "rse"}, RELATIONS, view=BY_RELATION) | {"selection": {"task": "stsb-dev"}}
    assert planned(chosen).selection is not None


def test_a_key_has_it_only_where_it_is_said() -> None:
    plain, said, frozen = (
        planned(values(SMOOTH, NLI, training=training)) for training in ({}, {"freeze_encoder": False}, {"freeze_encoder": True})
    )
    assert plain.key == said.key != frozen.key
    assert "freeze_encoder" not in str(plain.canonical()) and "freeze_encoder" in str(frozen.canonical())
