"""A report keeps dev and test apart, marks what is no evidence, and says what fresh seeds confirm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan, Trial, unroll
from sentdist.report.score_rows import TableRows
from sentdist.report.selection import chosen_cells, selection_note, selection_rows
from sentdist.report.sweep_report import report_sweep
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import ResultTable, build_table
from sentdist.stages.context import Context
from sentdist.stages.resolve import FileResolver
from sentdist.store.sweep import SweepRecord, confirmation, load_sweep
from sentdist.tasks.kinds import TASK_KINDS
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

BY_DEV = {"fine_tuned": 83.0, "rcl": 82.0}


NOISE = {"base": 3.0, "fine_tuned": 1.6, "rcl": 0.8}  # rcl is best on test, fine_tuned on dev


def _world(folder: Path, encoder: Path, *, seeds: int = 3, unfinished: tuple[str, ...] = ()) -> tuple[Plan, Context]:
    seeds_of: Json = list(range(seeds))
    plan, context = tiny_plan(tiny_values(encoder, seeds=seeds_of), data=write_data(folder / "data"), store=folder / "store")
    fill_store(
        context.store,
        plan,
        noise=lambda trial: NOISE[trial.method],
        dev=lambda trial: BY_DEV[trial.method] + 0.1 * (trial.seed or 0),
        skip=lambda trial: trial.name in unfinished,
        num_items={"stsb": 120},
    )
    return plan, context


def _table(context: Context) -> tuple[ResultTable, SweepRecord]:
    sweep = load_sweep(context.store, "tiny")
    found = sweep_rows(sweep, context.store, sweep.records(context.store))
    table = build_table(
        TableRows(title="t", rows=found.of_kind("sts"), columns=["STS-B"], average=False, measure=TASK_KINDS["sts"].main),
        baseline="fine_tuned",
        exploratory=found.exploratory,
    )
    return table, sweep


def test_cells_chosen_on_dev_have_their_dev_and_test_scores(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _world(tmp_path, tiny_encoder_dir)
    table, sweep = _table(context)
    cells = chosen_cells(sweep, sweep.records(context.store), table)
    assert [(cell.label, cell.dev_task, cell.dev) for cell in cells] == [
        ("fine_tuned", "stsb-dev", pytest.approx(83.1)), ("rcl", "stsb-dev", pytest.approx(82.1)),
    ]  # fmt: skip
    assert selection_rows(cells)[0] == ["fine_tuned", "stsb-dev", "83.10", f"{cells[0].headline:.2f}"]
    assert selection_note([replace(cells[0], chose_and_scored=("twitter-pit",))]).startswith("twitter-pit chose the weights")


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
    assert recipe.about.startswith(
        "rcl (learning_rate=0.002), best on dev of 3 cells of tiny beside the baseline, and fine_tuned (learning_rate=0.001)"
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


def _trained(trial: Trial) -> Train:
    assert isinstance(trial.scores.encoder, Train)
    return trial.scores.encoder


def test_a_report_is_exploratory_until_fresh_seeds_speak(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _swept(tmp_path, tiny_encoder_dir, confirm_seeds=3)
    exploratory = report_sweep(context.store, "tiny")
    assert "The settings were chosen on dev with the same seeds" in exploratory.lead and "3 seeds" in exploratory.rests_on
    assert (
        "Exploratory: dev chose rcl (learning" in exploratory.markdown
        and "among 3 settings beside the baseline with" in exploratory.markdown
    )
    sweep = load_sweep(context.store, "tiny")
    recipe = confirmation(sweep, sweep.records(context.store))
    assert recipe is not None
    fresh = unroll(recipe, FileResolver(data_root=tmp_path / "data"))
    fill_store(context.store, fresh, noise=lambda trial: 0.8 if trial.method == "rcl" else 1.6, num_items={"stsb": 60})
    confirmed, alone = report_sweep(context.store, "tiny"), report_sweep(context.store, "tiny-confirmed")
    *said, choice = confirmed.lead.splitlines()
    assert said == alone.lead.splitlines() and "of fresh seeds (tiny-confirmed)" in choice and confirmed.rests_on == alone.rests_on
    assert said[0].startswith("rcl ") and "Exploratory: dev chose" not in confirmed.markdown
    assert "by 3 new seeds of what dev chose among 3 settings beside the baseline (tiny-confirmed): rcl is" in confirmed.markdown
