"""Regression as a plan: what its defaults stand for, which values do not fit, and what a threshold sweep shares."""

from __future__ import annotations

import copy

import pytest

from sentdist.errors import RecipeError
from sentdist.objectives.regression import Regression
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from tests.support.planning import plan_of

NLI_PART: dict[str, Json] = {"source": "nli/snli", "columns": ["premise", "hypothesis", "label"], "scale": "nli"}
SCORES: dict[str, Json] = {
    "kind": "graded",
    "parts": [{"source": "sts/stsb", "scale": "zero_to_five"}, {"source": "sts/sick", "scale": "one_to_five"}],
}
SMOOTH: dict[str, Json] = {"name": "regression", "loss": "smooth_k2", "slope": 2.0, "threshold": 0.25}


def values_with(objective: dict[str, Json], *, corpus: dict[str, Json] | None = None, **stage_2: Json) -> dict[str, Json]:
    """A recipe of a first stage on NLI labels and a second with `objective` on scores (or on `corpus`)."""
    return copy.deepcopy(
        {
            "name": "small",
            "corpus": {"kind": "graded", "parts": [NLI_PART]},
            "corpora": {"scores": corpus or SCORES},
            "evaluation": {"tasks": ["stsb"]},
            "methods": {
                "stage_1": {"objective": SMOOTH},
                "stage_2": {"start": "stage_1", "corpus": "scores", "objective": objective} | stage_2,
            },
        }
    )


def planned(objective: dict[str, Json], **changes: object) -> Plan:
    return plan_of(recipe_from_values(values_with(objective, **changes), where="small.yaml"))  # type: ignore[arg-type]


def second(plan: Plan) -> Train:
    return next(stage for stage in plan.stages if isinstance(stage, Train) and stage.start is not None)


def test_defaults_are_written_out() -> None:
    for objective, boundary, spacing in [
        (SMOOTH, "one_sided", 1.0),
        ({"name": "regression", "loss": "cross_entropy"}, "none", 1.0),
        ({"name": "regression", "loss": "mse", "label_range": [0, 5], "spacing": 1}, "one_sided", 1.0),
    ]:
        plan = planned(objective)
        found = second(plan).objective
        assert isinstance(found, Regression)
        assert (found.boundary, found.label_range, found.spacing) == (boundary, (0.0, 5.0), spacing)
        (first,) = (stage.objective for stage in plan.stages if isinstance(stage, Train) and stage.start is None)
        assert isinstance(first, Regression) and first.label_range == (0.0, 2.0)


def test_what_is_written_out_has_the_key_of_what_is_left_out() -> None:
    said = SMOOTH | {"boundary": "one_sided", "label_range": [0, 5], "spacing": 1.0, "features": "uv_diff"}
    assert second(planned(SMOOTH)).key == second(planned(said)).key


CLASSES: dict[str, Json] = {"loss": "cross_entropy", "slope": None, "threshold": None}
STSB: dict[str, Json] = {"source": "sts/stsb", "scale": "zero_to_five"}


def test_objectives_that_do_not_fit() -> None:
    for changes, message in [
        ({"slope": 0}, "stage_2.objective.slope: found 0"),
        ({"slope": None}, "slope: found nothing"),
        ({"threshold": None}, "threshold: found nothing"),
        ({"threshold": -0.1}, "objective.threshold: found -0.1"),
        ({"threshold": 0.6}, "found threshold 0.6 for labels 1 apart; expected at most 0.5"),
        ({"loss": "mse"}, "slope: has no effect with mse"),
        (CLASSES | {"boundary": "clamp"}, "boundary: found clamp"),
        ({"label_range": [5, 0]}, "label_range: found"),
        ({"label_range": [0, 5], "spacing": 2}, "label_range: found 0 to 5 in steps of 2"),
        ({"label_range": [0, 2]}, "found label_range 0 to 2; expected 0 to 5"),
        ({"spacing": 0.5}, "found spacing 0.5; expected 1"),
        (CLASSES | {"keep_head": True}, "keep_head: found a head on uv_diff, one output"),
        ({"features": "uv", "keep_head": True}, "keep_head: found a head on uv_diff, one output"),
    ]:
        objective = {field: value for field, value in (SMOOTH | changes).items() if value is not None}
        with pytest.raises(RecipeError) as caught:
            planned(objective)
        assert message in str(caught.value)


def test_corpora_that_do_not_fit() -> None:
    for changes, message in [
        ({"rounding": "none"}, "found labels that are not rounded"),
        ({"spacing": 2}, "corpora.scores.spacing: found 2; expected a divisor of 5"),
        ({"spacing": 0.5, "rounding": "none"}, "corpora.scores.spacing: found 0.5 with rounding none"),
        ({"parts": [NLI_PART], "rounding": "half_up"}, "corpora.scores.rounding: found half_up"),
        ({"parts": [NLI_PART, STSB]}, "corpora.scores.parts: found label words beside scores"),
        ({"parts": [STSB, STSB]}, "corpora.scores.parts: found sts/stsb:train, sts/stsb:train"),
        ({"without": ["sts17"]}, "corpora.scores.without: found sts17"),
    ]:
        with pytest.raises(RecipeError) as caught:
            planned(SMOOTH, corpus=SCORES | changes)
        assert message in str(caught.value)


def test_a_head_is_kept_from_a_stage_that_has_it() -> None:
    kept = second(planned(SMOOTH | {"keep_head": True})).objective
    assert isinstance(kept, Regression) and kept.keep_head
    values = values_with(SMOOTH | {"keep_head": True})
    methods = values["methods"]
    assert isinstance(methods, dict) and isinstance(methods["stage_2"], dict)
    del methods["stage_2"]["start"]
    values_of_sum = values_with({"name": "sum", "terms": [{"objective": SMOOTH | {"keep_head": True}}, {"objective": {"name": "mlm"}}]})
    with pytest.raises(RecipeError, match="expected a start with a head on uv_diff, one output, by the same objective"):
        plan_of(recipe_from_values(values_of_sum, where="small.yaml"))
    with pytest.raises(RecipeError, match="keep_head: found no start; expected a start with a head on uv_diff, one output"):
        plan_of(recipe_from_values(values, where="small.yaml"))


def test_a_filter_names_its_tasks_and_changes_the_key() -> None:
    plain, filtered = planned(SMOOTH), planned(SMOOTH, corpus=SCORES | {"without": ["sts"]})
    corpus = second(filtered).corpus
    assert [task.name for task in getattr(corpus, "without", ())] == ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
    assert corpus.key != second(plain).corpus.key and corpus.label.endswith("-filtered")


def test_a_headline_is_a_method_that_is_compared() -> None:
    values = values_with(SMOOTH) | {"headline": "stage_2", "baseline": "stage_1"}
    assert recipe_from_values(values, where="small.yaml").headline == "stage_2"
    for changes, message in (
        ({"headline": "stage_3"}, "headline: .stage_3. is not one of stage_2"),
        ({"headline": "stage_1"}, "headline: .stage_1. is not one of stage_2"),
        ({"baseline": None}, "headline: has no effect without a baseline"),
    ):
        with pytest.raises(RecipeError, match=message):
            recipe_from_values(values | changes, where="small.yaml")
