"""One's own data choose checkpoints and take folds, by what the files are."""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.specs import Task
from sentdist.plan.stages import Train
from tests.support.planning import plan_of, small_recipe

METHOD = {"fine_tuned": {"objective": {"name": "info_nce"}}}


KINDS = [f"{kind}=my/data@dev" for kind in ("sts", "pairs", "reranking", "triplets")]


def test_own_data_choose_checkpoints() -> None:
    for task in [*KINDS, "retrieval=my/bank", "sts=my/data@dev+stsb-dev", "pairs=my/data@dev+twitter"]:
        plan = plan_of(small_recipe(selection={"task": task}, methods=METHOD))
        (train,) = (stage for stage in plan.stages if isinstance(stage, Train))
        assert train.selection is not None
        first = train.selection.task
        assert first.source in ("my/data", "my/bank") and first.kind == task.partition("=")[0]


def test_what_cannot_choose_is_refused() -> None:
    for task, message in [
        ("clustering=my/data", "chooses no checkpoint"),
        ("classification=my/data", "sts=SOURCE"),
        ("sts=my/pairs+retrieval=my/bank", "tasks of one kind"),
    ]:
        with pytest.raises(RecipeError, match=message):
            small_recipe(selection={"task": task}, methods=METHOD)


def test_own_faqs_take_folds() -> None:
    recipe = small_recipe(
        corpus={"source": "faqs/mine", "split": None}, folds={"num": 4}, selection={"task": "retrieval=faqs/mine"}, methods=METHOD,
        evaluation={"tasks": ["retrieval=faqs/mine"]},
    )  # fmt: skip
    plan = plan_of(recipe)
    assert len(plan.trials) == 4
    for trial in plan.trials:
        train, (task,) = trial.scores.encoder, trial.scores.tasks
        assert isinstance(train, Train) and train.selection is not None and isinstance(task, Task)
        assert train.corpus.fold == task.fold == train.selection.task.fold is not None  # type: ignore[attr-defined]
        assert (task.fold_role, train.selection.task.fold_role) == ("test", "dev")
