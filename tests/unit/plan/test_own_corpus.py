"""A corpus of one's own file in a recipe: which stages and tasks it comes to, which methods are for it, what is refused."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sentdist.data.own.file_rows import OwnFile
from sentdist.errors import RecipeError
from sentdist.plan.corpora.graded import GradedCorpus
from sentdist.plan.corpora.own import own_section
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.recipe import load_recipe, recipe_from_values
from sentdist.plan.specs import OwnRows, Task
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.task_kinds import TripletTask
from sentdist.plan.task_names import own_test_names
from sentdist.plan.unroll import Plan
from sentdist.store.sweep import sweep_record
from sentdist.tracking.sweep_summary import sweep_metric
from tests.support.planning import RECIPES, plan_of, small_recipe


def own_plan(*overrides: str) -> Plan:
    return plan_of(load_recipe(RECIPES / "own.yaml", overrides))


@pytest.mark.parametrize(
    ("shape", "method", "kinds"),
    [
        ("pairs", "contrastive", ["retrieval"]),
        ("faq", "contrastive", ["retrieval"]),
        ("triplets", "contrastive", ["retrieval", "triplets"]),
        ("graded", "graded", ["sts"]),
    ],
)
def test_a_shape_has_its_stages_tasks_and_methods(shape: str, method: str, kinds: list[str]) -> None:
    plan = own_plan(f"corpus.shape={shape}")
    assert {trial.method for trial in plan.trials} == {"base", "words", method}
    train = next(stage for stage in plan.stages if isinstance(stage, Train))
    assert isinstance(train.corpus, GradedCorpus if shape == "graded" else RowsCorpus) and train.corpus.num_columns == (
        3 if shape == "triplets" else 2
    )
    assert train.selection is not None and train.selection.task.split == "dev"
    tasks = plan.trials[0].scores.tasks
    assert [task.kind for task in tasks] == kinds and {getattr(task, "split", None) for task in tasks} == {"test"}
    of_rows = [task.own for task in tasks if isinstance(task, Task | TripletTask)]
    assert of_rows == [train.selection.task.own] * len(tasks)
    assert own_test_names("pairs.csv", plan.recipe.corpus.shape) == tuple(task.name for task in tasks)  # type: ignore[union-attr, attr-defined]
    assert sweep_metric(sweep_record(plan)).startswith(tasks[0].name)
    assert len({task.name for task in (*tasks, train.selection.task)}) == len(tasks) + 1


@pytest.mark.parametrize("shape", ["pairs", "faq", "triplets", "graded"])
def test_a_limit_is_drawn_by_its_seed_and_scores_are_taken_as_they_are(shape: str) -> None:
    plan = own_plan(f"corpus.shape={shape}", "corpus.limit=100", "corpus.limit_seed=3")
    corpus = next(stage.corpus for stage in plan.stages if isinstance(stage, Train))
    assert isinstance(corpus, RowsCorpus | GradedCorpus) and (corpus.limit, corpus.limit_seed, plan.rows[corpus.key]) == (100, 3, 100)
    assert not isinstance(corpus, GradedCorpus) or (corpus.rounding, corpus.labels.spacing) == ("none", None)


def test_columns_may_be_named_by_their_numbers() -> None:
    by_number, by_text = (
        own_plan(f"corpus.columns={columns}", f"corpus.group={group}") for columns, group in (("[1, 2]", "3"), ("['1', '2']", "'3'"))
    )
    assert by_number.recipe.corpus == by_text.recipe.corpus and [stage.key for stage in by_number.stages] == [
        stage.key for stage in by_text.stages
    ]
    with pytest.raises(RecipeError, match="expected text"):
        own_plan("corpus.columns=[true, 2]")


def test_what_is_held_out_is_part_of_every_key() -> None:
    one, other = (own_plan(f"corpus.file={file}") for file in ("one.csv", "other.csv"))
    assert not {stage.key for stage in one.stages} & {stage.key for stage in other.stages}


def test_the_plan_s_value_and_the_reader_s_have_the_same_fields() -> None:
    assert list(OwnRows.model_fields) == [field.name for field in fields(OwnFile)]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("corpus={source: nli/triplets}", "expected one of kind own"),
        ("folds={num: 5}", "folds: has no effect on a corpus of kind own"),
        ("corpus.held_out.test=0", "found 0; expected"),
        ("corpus.held_out.most=2", "found 2; expected 5 or more"),
        ("corpus.fle=a.csv", 'did you mean "file"'),
        ("corpus.shape=pair", 'one of pairs, triplets, graded, faq. Did you mean "pairs"?'),
        ("methods.graded.shapes=[grades]", 'one of pairs, triplets, graded, faq. Did you mean "graded"?'),
        ("selection.task=own+stsb-dev", "tasks of one kind"),
    ],
)
def test_what_has_no_sense_is_refused_while_planning(override: str, said: str) -> None:
    with pytest.raises(RecipeError) as refused:
        own_plan(override)
    assert said in str(refused.value)


def test_shapes_belong_to_a_corpus_of_kind_own() -> None:
    with pytest.raises(RecipeError, match="shapes: has no effect on a corpus of kind rows"):
        small_recipe(methods={"base": {}, "one": {"objective": {"name": "info_nce"}, "shapes": ["pairs"]}})


@pytest.mark.parametrize("values", [{"encoding": "klingon"}, {"encoding": "klingon", "held_out": {"dev": 0.1}}])
def test_an_encoding_that_there_is_not_is_reported_alike_by_a_recipe_and_by_tune(values: dict[str, Json]) -> None:
    said = "'klingon'; expected an encoding that Python knows, such as utf-8, utf-16, cp1252 or shift-jis"
    with pytest.raises(RecipeError, match=rf"DATA\.encoding: found {said}\. Correct it\."):
        own_section({"kind": "own", "file": "a.csv", **values}, where="DATA")
    recipe = {"name": "a", "encoder": {"checkpoint": "minilm-l6"}, "corpus": {"kind": "own", "file": "a.csv", **values}}
    with pytest.raises(RecipeError, match=rf"corpus\.encoding: found {said}"):
        recipe_from_values(recipe, where="a.yaml")
