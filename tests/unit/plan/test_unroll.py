"""Unrolling: which stages a recipe comes to, what trials share, and what a plan remarks."""

from __future__ import annotations

from collections import Counter

import pytest

from sentdist.errors import RecipeError
from sentdist.objectives.entropy import Entropy
from sentdist.objectives.rcl import RCL
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.specs import Task
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.suggestions import searched
from sentdist.plan.unroll import Plan
from tests.support.planning import FixedResolver, plan_of, small_recipe, with_method
from tests.support.planning import small_values as small

PAPER_SETS: list[Json] = [[round(0.01 * n, 2) for n in range(1, last + 1)] for last in range(1, 6)]


def _kinds(plan: Plan) -> Counter[str]:
    return Counter(stage.kind for stage in plan.stages)


def _entropy_trainings(plan: Plan) -> list[Train]:
    return [stage for stage in plan.stages if isinstance(stage, Train) and isinstance(stage.objective, Entropy)]


def _refusal(**changes: Json) -> str:
    with pytest.raises(RecipeError) as caught:
        plan_of(small_recipe(**changes))
    return str(caught.value)


def test_the_paper_s_grid_builds_ten_entropy_encoders_for_thirty_mentions() -> None:
    methods = {name: method for name, method in _methods().items() if name in ("entropy", "rcl")}
    plan = plan_of(small_recipe(methods=methods, sweep={"training.batch_size": [32, 64], "methods.rcl.phis": PAPER_SETS}))
    entropy = _entropy_trainings(plan)
    assert len(plan.trials) == 10
    assert len(entropy) == 10
    assert sum(plan.mentions[stage.key] for stage in entropy) == 30
    assert _kinds(plan) == {"corpus": 1, "train": 20, "bank": 10, "scores": 10}


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


def test_a_grid_value_is_named_only_where_it_matters() -> None:
    plan = plan_of(small_recipe(sweep={"methods.rcl.phis": [[0.01], [0.01, 0.02]]}))
    cells = [trial.cell for trial in plan.trials]
    assert cells == ["base", "fine_tuned", "rcl (phis={0.01})", "rcl (phis={0.01, 0.02})"]


def test_runtime_changes_no_key() -> None:
    runtimes: list[Json] = [{}, {"workers": 2, "zero_stage": 3, "log_every": 1, "rows_per_shard": 100}, {"workers": 2, "engine": "torch"}]
    first, second, third = (plan_of(small_recipe(runtime=runtime)) for runtime in runtimes)
    assert [stage.key for stage in first.stages] == [stage.key for stage in second.stages] == [stage.key for stage in third.stages]


def test_a_final_training_may_start_elsewhere_than_its_entropy_encoders() -> None:
    """RCL's FAQ protocol: initial → entropy encoders → final from the pretrained one."""
    methods: Json = {
        "initial": {"objective": {"name": "info_nce"}, "reported": False},
        "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "start": "initial", "reported": False},
        "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02]},
    }
    plan = plan_of(small_recipe(methods=methods))
    (final,) = [stage for stage in plan.stages if isinstance(stage, Train) and isinstance(stage.objective, RCL)]
    starts = [bank.encoder.start for bank in final.banks]
    assert final.start is None
    assert len({start.key for start in starts if start is not None}) == 1
    assert _kinds(plan) == {"corpus": 1, "train": 4, "bank": 2, "scores": 1}


def test_what_no_fold_changes_is_one_trial_of_the_first_fold() -> None:
    changes: dict[str, Json] = {"corpus": {"source": "retrieval/stackfaq", "split": None}, "evaluation": {"tasks": ["stsb"]}}
    plan = plan_of(small_recipe(folds={"num": 5}, selection={"task": "stackfaq"}, **changes))
    folds = {method: [trial.fold for trial in plan.trials if trial.method == method] for method in ("base", "fine_tuned")}
    assert folds == {"base": [0], "fine_tuned": [0, 1, 2, 3, 4]}


def test_folds_hold_for_each_retrieval_collection_that_trains() -> None:
    """A method that trains on another collection than the recipe's is tested on that collection's fold, and reads its documents alike."""
    changes: dict[str, Json] = {
        "corpus": {"source": "retrieval/cranfield", "split": None},
        "corpora": {"faq": {"source": "retrieval/stackfaq", "split": None, "document_field": "question_answer"}},
        "folds": {"num": 5},
        "selection": {"task": "stackfaq"},
        "evaluation": {"tasks": ["cranfield", "stackfaq", "scifact"]},
        "methods": {"faq": {"corpus": "faq", "objective": {"name": "info_nce"}}},
    }
    for trial in plan_of(small_recipe(**changes)).trials:
        train = trial.scores.encoder
        assert isinstance(train, Train) and train.selection is not None
        fold = getattr(train.corpus, "fold", None)
        found = {task.name: (task.fold, task.fold_role, task.document_field) for task in trial.scores.tasks if isinstance(task, Task)}
        assert fold is not None and found == {
            "cranfield": (fold, "test", "answer"),
            "stackfaq": (fold, "test", "question_answer"),
            "scifact": (None, None, "answer"),
        }
        assert isinstance(train.selection.task, Task) and (train.selection.task.fold, train.selection.task.fold_role) == (fold, "dev")


def _methods() -> dict[str, Json]:
    methods = small()["methods"]
    assert isinstance(methods, dict)
    return methods


PAIRS: Json = {"source": "nli/pairs", "columns": ["one", "two"]}
BATCHES: Json = {"training.batch_size": [32, 64]}
MLM: Json = {"objective": {"name": "mlm"}}


def _notes(objective: Json, **changes: Json) -> list[str]:
    return _beginnings(plan_of(small_recipe(methods={"tuned": {"objective": objective}}, **changes)).notes)


def _beginnings(notes: tuple[str, ...]) -> list[str]:
    return [" ".join(note.split()[:4]) for note in notes]


def _searched(methods: Json, space: Json) -> list[str]:
    return _beginnings(searched(small_recipe(methods=methods, search={"samples": 2, "space": space}), FixedResolver()).notes)


def test_info_nce_without_a_temperature_is_shown_which_it_has() -> None:
    said, path = ["methods.tuned: info_nce divides cosines"], "methods.tuned.objective.temperature"
    assert _notes({"name": "info_nce"}) == _notes({"name": "info_nce"}, corpus=PAIRS) == said
    assert _notes({"name": "sum", "terms": [{"objective": {"name": "info_nce"}}, MLM]}) == said
    assert _notes({"name": "info_nce"}, sweep=BATCHES) == said, "once, not at each point"
    assert _notes({"name": "info_nce", "temperature": 1.0}) == _notes({"name": "info_nce"}, sweep={path: [0.05, 0.1]}) == []
    methods: Json = {"tuned": {"objective": {"name": "info_nce"}}}
    assert said[0] not in _searched(methods, {path: {"choice": [0.05, 0.1]}})
    assert said[0] in _searched(methods, {"training.batch_size": {"choice": [32, 64]}})


def test_hard_negatives_that_are_not_read_or_not_there_are_reported() -> None:
    assert _notes({"name": "mlm"}) == ["methods.tuned: mlm reads no"] and _notes({"name": "mlm"}, corpus=PAIRS) == []
    assert _notes({"name": "entropy", "phi": 0.01, "hard_negatives": False}) == [], "that is written"
    asked: dict[str, Json] = {"name": "info_nce", "temperature": 0.05, "hard_negatives": True}
    shown = ["methods.tuned: hard_negatives true of"]
    assert _notes(asked, corpus=PAIRS) == _notes(asked, corpus=PAIRS, sweep=BATCHES) == shown
    assert _notes({"name": "sum", "terms": [{"objective": asked}, MLM]}, corpus=PAIRS) == shown
    assert _notes(asked) == _notes({"name": "info_nce", "temperature": 0.05}, corpus=PAIRS) == []


def test_a_learning_rate_with_which_nothing_is_learned_is_reported() -> None:
    asked: Json = {"name": "info_nce", "temperature": 1.0}
    assert _notes(asked, training={"learning_rate": "2e5"}) == ["methods.tuned: learning_rate 200000 is"]
    assert _notes(asked, training={"learning_rate": 0.01}) == []


def test_what_stands_in_a_recipe_and_is_not_built_is_reported() -> None:
    spare: dict[str, Json] = {"objective": {"name": "entropy", "phi": 0.01}, "corpus": "spare", "reported": False}
    corpora: Json = {"spare": {"source": "nli/other"}, "swept": {"source": "nli/other", "limit": 99}}
    methods: dict[str, Json] = {"tuned": {"objective": {"name": "info_nce", "temperature": 1.0}}, "spare": spare}

    def notes() -> list[str]:
        return _beginnings(plan_of(small_recipe(corpora=corpora, methods=methods, sweep={"methods.tuned.corpus": [None, "swept"]})).notes)

    assert notes() == ["methods.spare is not trained:", "corpora.spare is not read:"]
    methods["rcl"] = {"objective": {"name": "rcl"}, "bank": "spare", "phis": [0.01]}
    assert notes() == []
    methods["spare"] = spare | {"view": {"postprocess": "center"}}
    assert notes() == ["methods.spare.view has no effect:"]


def test_a_phi_that_others_take_the_place_of_is_reported() -> None:
    def notes(*, reported: bool = False, sweep: dict[str, Json] | None = None, **others: Json) -> list[str]:
        entropy: Json = {"objective": {"name": "entropy", "phi": 0.5}, "reported": reported}
        rcl: Json = {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02]}
        return _beginnings(plan_of(small_recipe(methods={"entropy": entropy, "rcl": rcl, **others}, sweep=sweep or {})).notes)

    shown = ["methods.entropy: phi 0.5 of"]
    assert notes() == notes(sweep={"training.batch_size": [32, 64]}) == notes(sweep={"methods.rcl.phis": [[0.01], [0.02]]}) == shown
    assert notes(reported=True) == [], "its row has it"
    assert notes(sweep={"methods.rcl.phis": [[0.01], [0.5]]}) == [], "one of the points trains it"
    assert notes(other={"objective": {"name": "rcl"}, "bank": "entropy"}) == [], "that bank is of the method as it is"
