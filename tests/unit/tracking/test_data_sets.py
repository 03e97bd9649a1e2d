"""Which data a run names as read: for training, on dev and on test."""

from __future__ import annotations

from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.tracking.run_values import data_sets
from tests.support.mlflow_fixtures import layout_of, small_sweep
from tests.support.planning import plan_of, small_recipe, with_method


def test_what_an_entropy_encoder_was_trained_on_is_read_by_what_its_bank_regularizes() -> None:
    values = with_method(entropy={"objective": {"name": "entropy", "phi": 0.01}, "corpus": "other", "select": False, "reported": False})
    plan = plan_of(recipe_from_values(values | {"corpora": {"other": {"source": "nli/other"}}}, where="test"))
    trained = next(trial.scores.encoder for trial in plan.trials if trial.method == "rcl")
    assert isinstance(trained, Train)
    assert [name for name, _, context in data_sets(trained) if context == "train"] == ["nli/triplets (train)", "nli/other (train)"]


def test_data_sets_say_what_they_are_for() -> None:
    layout = layout_of(small_sweep("s"))
    found = data_sets(layout.stages[next(trial.key for trial in layout.trials.values() if trial.method == "rcl")])
    assert found[:2] == [("nli/triplets (train)", "sha256:0000000000000000", "train"), ("sts/stsb (dev)", "sha256:0000000000000000", "dev")]
    assert {context for *_, context in found[2:]} == {"test"}
    several = layout_of(plan_of(small_recipe(selection={"task": "stsb-dev+sickr-dev"})))
    trained = next(trial.key for trial in several.trials.values() if trial.method == "fine_tuned")
    assert [name for name, _, context in data_sets(several.stages[trained]) if context == "dev"] == ["sts/stsb (dev)", "sts/sick (trial)"]


def test_what_all_trained_trials_read_stands_on_the_sweep_s_run_and_the_rest_on_theirs() -> None:
    layout = layout_of(small_sweep("s"))
    trained = {key: data_sets(layout.stages[key]) for key, trial in layout.trials.items() if trial.train is not None}
    for key, read in trained.items():
        assert sorted([*layout.common_data_sets, *layout.data_sets(key)]) == sorted(read)
    assert {context for *_, context in layout.common_data_sets} == {"train", "test"}
    names = ("snli", "mnli")
    corpora: dict[str, Json] = {name: {"source": f"nli/{name}"} for name in names}
    methods: dict[str, Json] = {name: {"objective": {"name": "info_nce"}, "corpus": name} for name in names}
    differ = layout_of(plan_of(small_recipe(corpora=corpora, methods=methods)))
    assert [[name for name, _, context in differ.data_sets(key) if context == "train"] for key in differ.trials] == [
        ["nli/snli (train)"], ["nli/mnli (train)"],
    ]  # fmt: skip
    assert {context for *_, context in differ.common_data_sets} == {"dev", "test"}
