"""What dev chose is trained again with seeds that chose nothing, and a report says which of the two it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan, Trial, unroll
from sentdist.report.sweep_report import report_sweep
from sentdist.stages.context import Context
from sentdist.stages.planning.resolve import FileResolver
from sentdist.store.chosen import challengers, confirmation
from sentdist.store.sweep import load_sweep
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

RATES: Json = [1e-3, 2e-3, 3e-3]


def _dev(trial: Trial) -> float:
    """The middle rate of rcl is best on dev, but for the baseline, which is no candidate."""
    rate = dict(trial.params)["training.learning_rate"]
    return 90.0 if trial.method == "fine_tuned" else 84.0 if rate == 2e-3 else 80.0


def _swept(folder: Path, encoder: Path, **changes: Json) -> tuple[Plan, Context]:
    values = tiny_values(encoder, seeds=[0, 5, 1], sweep={"training.learning_rate": RATES}, **changes)
    plan, context = tiny_plan(values, data=write_data(folder / "data"), store=folder / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.5, dev=_dev, num_items={"stsb": 60})
    return plan, context


def test_the_chosen_cell_and_the_baseline_are_trained_with_fresh_seeds(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = _swept(tmp_path, tiny_encoder_dir, confirm_seeds=4)
    sweep = load_sweep(context.store, "tiny")
    recipe = confirmation(sweep, sweep.records(context.store))
    assert recipe is not None and (recipe.name, recipe.seeds, recipe.sweep, recipe.confirm_seeds) == ("tiny-confirmed", (6, 7, 8, 9), {}, 0)
    assert recipe.about == (
        "rcl (learning_rate=0.002), best on dev of 3 cells of tiny beside the baseline, and fine_tuned (learning_rate=0.001), "
        "best of the baseline's, with seeds that chose nothing."
    )
    assert recipe.headline == "rcl"
    fresh = unroll(recipe, FileResolver(data_root=tmp_path / "data"))
    assert {(trial.method, trial.seed) for trial in fresh.trials} == {
        (name, seed) for name in ("fine_tuned", "rcl") for seed in (6, 7, 8, 9)
    }
    encoders = [trial.scores.encoder for trial in fresh.trials]
    assert {(trial.method, _trained(trial).training.learning_rate) for trial in fresh.trials} == {("rcl", 2e-3), ("fine_tuned", 1e-3)}
    assert not {encoder.key for encoder in encoders} & {stage.key for stage in plan.stages}
    alike = next(trial for trial in plan.trials if trial.method == "rcl" and dict(trial.params)["training.learning_rate"] == 2e-3)
    (same,) = [
        trial
        for trial in unroll(recipe.model_copy(update={"seeds": (0,)}), FileResolver(data_root=tmp_path / "data")).trials
        if trial.method == "rcl"
    ]
    assert same.key == alike.key, "but for its seed it is the very cell"


def _confirmed(folder: Path, encoder: Path, **changes: Json) -> dict[str, Train]:
    """What a confirmation trains with its first seed, by method."""
    _, context = _swept(folder, encoder, confirm_seeds=1, **changes)
    sweep = load_sweep(context.store, "tiny")
    recipe = confirmation(sweep, sweep.records(context.store))
    assert recipe is not None
    return {trial.method: _trained(trial) for trial in unroll(recipe, FileResolver(data_root=folder / "data")).trials}


def _trained(trial: Trial) -> Train:
    assert isinstance(trial.scores.encoder, Train)
    return trial.scores.encoder


STILL: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
FIRST_STAGE: Json = {"objective": {"name": "info_nce", "temperature": 0.1}, "regularizers": STILL, "select": False, "reported": False}


def _methods(*, rcl: dict[str, Json], fine_tuned: dict[str, Json], **more: Json) -> Json:
    return {
        "fine_tuned": {"objective": {"name": "info_nce", "temperature": 0.05}, "regularizers": STILL, **fine_tuned},
        "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "regularizers": STILL, "select": False, "reported": False},
        "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01], "regularizers": STILL, **rcl},
        **more,
    }


def test_a_baseline_keeps_what_dev_chose_for_it_with_all_it_builds_on(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    methods = _methods(rcl={}, fine_tuned={"start": "first", "training": {"learning_rate": 5e-4}}, first=FIRST_STAGE)
    found = _confirmed(tmp_path, tiny_encoder_dir, methods=methods)
    first = found["fine_tuned"].start
    assert first is not None and first.training.learning_rate == 1e-3
    assert found["fine_tuned"].training.learning_rate == 5e-4, "which it says itself"
    assert found["rcl"].training.learning_rate == found["rcl"].banks[0].encoder.training.learning_rate == 2e-3


def test_a_baseline_is_trained_at_the_cells_point_where_both_build_on_one_method(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    methods = _methods(rcl={"start": "first"}, fine_tuned={"start": "first"}, first=FIRST_STAGE)
    found = _confirmed(tmp_path, tiny_encoder_dir, methods=methods)
    assert {train.training.learning_rate for train in found.values()} == {2e-3}


def test_a_field_that_concerns_the_baseline_alone_keeps_its_best_value(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = tiny_values(tiny_encoder_dir, seeds=[0], confirm_seeds=1, sweep={"methods.fine_tuned.objective.temperature": [0.1, 0.2, 0.3]})
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    best = lambda trial: 70.0 + 20 * (dict(trial.params).get("methods.fine_tuned.objective.temperature") == 0.2)  # noqa: E731
    fill_store(context.store, plan, noise=lambda trial: 1.5, dev=best, num_items={"stsb": 60})
    sweep = load_sweep(context.store, "tiny")
    recipe = confirmation(sweep, sweep.records(context.store))
    assert recipe is not None and "and fine_tuned (temperature=0.2), best of the baseline's" in recipe.about
    assert recipe.methods["fine_tuned"].objective == recipe_from_values(values, where="tiny").methods["fine_tuned"].objective.model_copy(
        update={"temperature": 0.2}
    )


def test_a_report_is_exploratory_until_fresh_seeds_speak(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _swept(tmp_path, tiny_encoder_dir, confirm_seeds=3)
    exploratory = report_sweep(context.store, "tiny")
    before = exploratory.markdown
    assert "The settings were chosen on dev with the same seeds" in exploratory.lead and "3 seeds" in exploratory.rests_on
    assert (
        "Exploratory: dev chose rcl (learning" in before
        and "among 6 cells" not in before
        and "among 3 cells beside the baseline with" in before
    )
    sweep = load_sweep(context.store, "tiny")
    recipe = confirmation(sweep, sweep.records(context.store))
    assert recipe is not None
    fresh = unroll(recipe, FileResolver(data_root=tmp_path / "data"))
    fill_store(context.store, fresh, noise=lambda trial: 0.8 if trial.method == "rcl" else 1.6, num_items={"stsb": 60})
    confirmed, alone = report_sweep(context.store, "tiny"), report_sweep(context.store, "tiny-confirmed")
    after = confirmed.markdown
    *said, choice = confirmed.lead.splitlines()
    assert said == alone.lead.splitlines() and "of fresh seeds (tiny-confirmed)" in choice and confirmed.rests_on == alone.rests_on
    assert f"\n{said[0]}\n" in after and said[0].startswith("rcl ")
    assert (
        "Exploratory: dev chose" not in after
        and "by 3 fresh seeds of what dev chose among 3 cells beside the baseline (tiny-confirmed): rcl is" in after
    )


def test_nothing_is_confirmed_unasked_or_without_a_choice(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _swept(tmp_path, tiny_encoder_dir)
    sweep = load_sweep(context.store, "tiny")
    records = sweep.records(context.store)
    cells = challengers(sweep, records)
    assert (cells[0].trials[0].method, cells[0].dev) == ("rcl", 84.0)
    assert confirmation(sweep, records) is None and challengers(sweep, {}) == []
    with pytest.raises(RecipeError, match="confirm_seeds: has no effect"):
        recipe_from_values(tiny_values(tiny_encoder_dir, confirm_seeds=3) | {"selection": None}, where="tiny")
