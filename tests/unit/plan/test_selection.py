"""What chooses a checkpoint: one dev task or several; one's own data and corpora, also in folds."""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.corpora.graded import GradedCorpus
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.recipe import load_recipe
from sentdist.plan.specs import Task
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.task_kinds import TripletTask
from sentdist.plan.task_names import own_test_names
from sentdist.plan.unroll import Plan
from sentdist.store.sweep import sweep_record
from sentdist.tracking.sweep_summary import sweep_metric
from tests.support.planning import RECIPES, plan_of, small_recipe

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


def test_a_shape_has_its_stages_tasks_and_methods() -> None:
    for shape, method, kinds in [
        ("pairs", "contrastive", ["retrieval"]),
        ("faq", "contrastive", ["retrieval"]),
        ("triplets", "contrastive", ["retrieval", "triplets"]),
        ("graded", "graded", ["sts"]),
    ]:
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


def test_a_limit_is_drawn_by_its_seed_and_scores_are_taken_as_they_are() -> None:
    for shape in ["pairs", "faq", "triplets", "graded"]:
        plan = own_plan(f"corpus.shape={shape}", "corpus.limit=100", "corpus.limit_seed=3")
        corpus = next(stage.corpus for stage in plan.stages if isinstance(stage, Train))
        assert isinstance(corpus, RowsCorpus | GradedCorpus) and (corpus.limit, corpus.limit_seed, plan.rows[corpus.key]) == (100, 3, 100)
        assert not isinstance(corpus, GradedCorpus) or (corpus.rounding, corpus.labels.spacing) == ("none", None)


def test_what_has_no_sense_is_refused_while_planning() -> None:
    for override, said in [
        ("corpus={source: nli/triplets}", "expected one of kind own"),
        ("folds={num: 5}", "folds: has no effect on a corpus of kind own"),
        ("corpus.held_out.test=0", "found 0; expected"),
        ("corpus.shape=pair", 'one of pairs, triplets, graded, faq. Did you mean "pairs"?'),
        ("selection.task=own+stsb-dev", "tasks of one kind"),
    ]:
        with pytest.raises(RecipeError) as refused:
            own_plan(override)
        assert said in str(refused.value)
