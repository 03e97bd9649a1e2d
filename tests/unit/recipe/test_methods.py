"""Methods and corpora of a recipe: combinations, frozen encoders, regression, grouped corpora, and what keys say of them."""

from __future__ import annotations

import copy

import pytest

from sentdist.corpora.graded import GradedCorpus
from sentdist.corpora.groups import GroupedCorpus
from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import RecipeError
from sentdist.objectives.auxiliary import Auxiliary
from sentdist.objectives.info_nce import InfoNCE
from sentdist.recipe.checks import settled_view
from sentdist.recipe.recipe import load_recipe, recipe_from_values
from sentdist.recipe.specs import View
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.store.sweep import sweep_record
from sentdist.tasks.names import own_test_names
from sentdist.tracking.values import sweep_metric
from tests.support.planning import RECIPES, plan_of, small_recipe, small_values
from tests.support.relations_data import ENTAILMENT, TWIN

SMOOTH: Json = {"name": "regression", "slope": 2.0, "threshold": 0.25}
NLI: Json = {"kind": "graded", "parts": [{"source": "nli/snli", "columns": ["premise", "hypothesis", "label"], "scale": "nli"}]}
PAIRS: Json = {"source": "pairs/some", "columns": ["anchor", "positive"]}
RELATIONS: Json = {"kind": "relations", "relations": [ENTAILMENT, TWIN]}
MLM: Json = {"objective": {"name": "mlm"}}


def trained(objective: Json, corpus: Json, *, selection: Json = None, **method: Json) -> Train:
    """The training of a recipe with one method."""
    values = small_values(corpus=corpus, selection=selection, methods={"m": {"objective": objective, **method}})
    (stage,) = (one for one in plan_of(recipe_from_values(values, where="small.yaml")).stages if isinstance(one, Train))
    return stage


def test_what_learns_something_of_its_own_may_be_trained_alone() -> None:
    projected: Json = {"name": "sum", "terms": [MLM, {"objective": {"name": "info_nce"}, "projected": True}]}
    learned: Json = {"name": "symmetric_info_nce", "learn_temperature": True}
    for objective, corpus in [(SMOOTH, NLI), ({"name": "rse"}, RELATIONS), (learned, PAIRS), (projected, PAIRS)]:
        assert trained(objective, corpus, training={"freeze_encoder": True}).training.freeze_encoder
    by_relation: Json = {"relations": {"weights": {"entailment": 1.0}}}
    chosen = trained({"name": "rse"}, RELATIONS, training={"freeze_encoder": True}, view=by_relation, selection={"task": "stsb-dev"})
    assert chosen.selection is not None, "scores by relation choose one, for relations are what is trained"


def grouped(section: Json) -> tuple[Train, GroupedCorpus]:
    stage = trained({"name": "supmpn"}, section)
    assert isinstance(stage.corpus, GroupedCorpus)
    return stage, stage.corpus


def test_what_a_corpus_does_not_say_is_taken_from_the_other() -> None:
    corpora: Json = {"short": {"like": "corpus", "limit": 5}, "shorter": {"like": "short", "limit_seed": 3}}
    recipe = small_recipe(corpus={"source": "nli/triplets", "limit": 100, "add_reversed": True}, corpora=corpora)
    assert [(one.limit, one.limit_seed, one.add_reversed) for one in recipe.corpora.values()] == [(5, 0, True), (5, 3, True)]  # type: ignore[attr-defined]


def test_a_part_of_the_channels_follows_objective_and_width() -> None:
    own, default = Auxiliary(channels=(8, 24)), Auxiliary()
    assert settled_view(View(channels="tags"), own, (), width=32, where="v").channels == (0, 8)
    assert settled_view(View(channels="words"), default, (), width=768, where="v").channels == (128, 768)
    assert settled_view(View(channels="words"), default, (), width=None, where="v").channels == "words", "a width that is not known yet"
    assert settled_view(View(channels=(0, 5)), InfoNCE(), (), width=32, where="v").channels == (0, 5)
    for view, objective, said in [
        (View(channels="tags"), InfoNCE(), "without parts"),
        (View(channels=(0, 64)), default, "found 0 to 64"),
    ]:
        with pytest.raises(RecipeError, match=said):
            settled_view(view, objective, (), width=768, where="methods.tags.view")


NLI_PART: dict[str, Json] = {"source": "nli/snli", "columns": ["premise", "hypothesis", "label"], "scale": "nli"}
SCORES: dict[str, Json] = {
    "kind": "graded",
    "parts": [{"source": "sts/stsb", "scale": "zero_to_five"}, {"source": "sts/sick", "scale": "one_to_five"}],
}
SMOOTH_REGRESSION: dict[str, Json] = {"name": "regression", "loss": "smooth_k2", "slope": 2.0, "threshold": 0.25}


def values_with(objective: dict[str, Json], *, corpus: dict[str, Json] | None = None, **stage_2: Json) -> dict[str, Json]:
    """A recipe of a first stage on NLI labels and a second with `objective` on scores (or on `corpus`)."""
    return copy.deepcopy(
        {
            "name": "small",
            "corpus": {"kind": "graded", "parts": [NLI_PART]},
            "corpora": {"scores": corpus or SCORES},
            "evaluation": {"tasks": ["stsb"]},
            "methods": {
                "stage_1": {"objective": SMOOTH_REGRESSION},
                "stage_2": {"start": "stage_1", "corpus": "scores", "objective": objective} | stage_2,
            },
        }
    )


def planned(objective: dict[str, Json], **changes: object) -> Plan:
    return plan_of(recipe_from_values(values_with(objective, **changes), where="small.yaml"))  # type: ignore[arg-type]


def second(plan: Plan) -> Train:
    return next(stage for stage in plan.stages if isinstance(stage, Train) and stage.start is not None)


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
        objective = {field: value for field, value in (SMOOTH_REGRESSION | changes).items() if value is not None}
        with pytest.raises(RecipeError) as caught:
            planned(objective)
        assert message in str(caught.value)


def test_corpora_that_do_not_fit() -> None:
    for changes, message in [
        ({"rounding": "none"}, "found labels that are not rounded"),
        ({"spacing": 2}, "corpora.scores.spacing: found 2; expected a divisor of 5"),
        ({"spacing": 0.5, "rounding": "none"}, "corpora.scores.spacing: 0.5 has no effect"),
        ({"parts": [NLI_PART], "rounding": "half_up"}, "corpora.scores.rounding: half_up has no effect"),
        ({"parts": [NLI_PART, STSB]}, "corpora.scores.parts: found NLI labels and scores"),
        ({"parts": [STSB, STSB]}, "corpora.scores.parts: found sts/stsb, sts/stsb"),
        ({"without": ["sts17"]}, "corpora.scores.without: found sts17"),
    ]:
        with pytest.raises(RecipeError) as caught:
            planned(SMOOTH_REGRESSION, corpus=SCORES | changes)
        assert message in str(caught.value)


TUNED: Json = {"fine_tuned": {"objective": {"name": "info_nce"}}}


def _training(task: str, **more: Json) -> Train:
    encoder = plan_of(small_recipe(selection={"task": task, **more}, methods=TUNED)).trials[-1].scores.encoder
    assert isinstance(encoder, Train) and encoder.selection is not None
    return encoder


def test_a_group_beside_others_counts_as_one_and_alone_as_its_tasks() -> None:
    both, alone = _training("askubuntu-dev+twitter").selection, _training("transfer-dev").selection
    first = _training("twitter+askubuntu-dev").selection
    assert both is not None and alone is not None and first is not None
    assert both.parts == (1, 2) and [list(part) for part in both.places] == [[0], [1, 2]]
    assert [list(part) for part in first.places] == [[0, 1], [2]]
    assert alone.parts == () and [len(part) for part in alone.places] == [1] * 7


def own_plan(*overrides: str) -> Plan:
    return plan_of(load_recipe(RECIPES / "own.yaml", overrides))


OF_SHAPE = {
    "pairs": "corpus.columns=null", "triplets": "corpus.columns={negative: other}", "graded": "corpus.columns={score: likeness}",
}  # fmt: skip


def test_a_shape_has_its_stages_tasks_and_methods() -> None:
    for shape, method, kinds in [
        ("pairs", "contrastive", ["retrieval"]),
        ("triplets", "contrastive", ["retrieval", "triplets"]),
        ("graded", "graded", ["sts"]),
    ]:
        plan = own_plan(OF_SHAPE[shape])
        assert {trial.method for trial in plan.trials} == {"base", "words", method}
        train = next(stage for stage in plan.stages if isinstance(stage, Train))
        assert isinstance(train.corpus, GradedCorpus if shape == "graded" else RowsCorpus) and train.corpus.num_columns == (
            3 if shape == "triplets" else 2
        )
        assert train.selection is not None and train.selection.task.split == "dev"
        tasks = plan.trials[0].scores.tasks
        assert [task.kind for task in tasks] == kinds and {getattr(task, "split", None) for task in tasks} == {"test"}
        of_rows = [task.own for task in tasks if task.own is not None]
        assert of_rows == [train.selection.task.own] * len(tasks)
        assert own_test_names("pairs.csv", train.selection.task.own.shape) == tuple(task.name for task in tasks)  # type: ignore[union-attr]
        assert sweep_metric(sweep_record(plan)).startswith(tasks[0].name)
        assert len({task.name for task in (*tasks, train.selection.task)}) == len(tasks) + 1


def test_a_limit_is_drawn_by_its_seed_and_scores_are_taken_as_they_are() -> None:
    for shape in OF_SHAPE:
        plan = own_plan(OF_SHAPE[shape], "corpus.limit=100", "corpus.limit_seed=3")
        corpus = next(stage.corpus for stage in plan.stages if isinstance(stage, Train))
        assert isinstance(corpus, RowsCorpus | GradedCorpus) and (corpus.limit, corpus.limit_seed, plan.rows[corpus.key]) == (100, 3, 100)
        assert not isinstance(corpus, GradedCorpus) or (corpus.rounding, corpus.labels.spacing) == ("none", None)


def test_what_has_no_sense_is_refused_while_planning() -> None:
    for override, said in [
        ("corpus={source: nli/triplets}", "expected one of kind own"),
        ("folds={num: 5}", "folds: has no effect on a corpus of kind own"),
        ("corpus.held_out.test=0", "found 0; expected"),
        ("selection.task=own+stsb-dev", "tasks of one kind"),
    ]:
        with pytest.raises(RecipeError) as refused:
            own_plan(override)
        assert said in str(refused.value)
