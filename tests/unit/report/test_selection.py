"""A report keeps dev and test apart, marks what is no evidence, and says what fresh seeds confirm."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.unroll import Plan, Trial, unroll
from sentdist.report.score_rows import TableRows
from sentdist.report.selection import chosen_cells, scored_on_test, selection_note, selection_rows, selection_sentence
from sentdist.report.sweep_report import report_sweep
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import ResultTable, build_table
from sentdist.stages.context import Context
from sentdist.stages.planning.resolve import FileResolver
from sentdist.store.chosen import challengers, confirmation
from sentdist.store.sweep import SweepRecord, load_sweep
from tests.support.planning import RECIPES, plan_of, shipped_plan, small_recipe
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


def test_dev_and_test_stand_apart(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _world(tmp_path, tiny_encoder_dir)
    table, sweep = _table(context)
    cells = chosen_cells(sweep, sweep.records(context.store), table)
    assert [(cell.label, cell.dev_task, cell.test_task) for cell in cells] == [
        ("fine_tuned", "stsb-dev", "stsb"),
        ("rcl", "stsb-dev", "stsb"),
    ]
    tuned = table.line("fine_tuned").cells["STS-B"].summary
    assert tuned is not None and cells[0].dev == pytest.approx(83.1) and cells[0].test == pytest.approx(tuned.mean)
    assert cells[0].gap == pytest.approx(83.1 - tuned.mean)
    assert selection_rows(cells)[0][2] == "83.10"


def test_a_test_score_that_a_run_lacks_leaves_the_cell_without_one(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """A mean over the other runs would stand beside a dev score of all."""
    _, context = _world(tmp_path, tiny_encoder_dir)
    table, sweep = _table(context)
    records = sweep.records(context.store)
    key = next(trial.key for trial in sweep.trials if (trial.cell, trial.seed) == ("rcl", 1))
    records[key] = records[key].model_copy(update={"results": records[key].results | {"stsb": None}})
    tuned, regulated = chosen_cells(sweep, records, table)
    assert tuned.test is not None and tuned.gap is not None and (regulated.test, regulated.gap) == (None, None)


def test_choosing_on_test_is_reported_as_optimism(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _world(tmp_path, tiny_encoder_dir)
    table, sweep = _table(context)
    cells = chosen_cells(sweep, sweep.records(context.store), table)
    said = selection_sentence(cells, column="STS-B")
    optimism = (cells[1].headline or 0) - (cells[0].headline or 0)
    assert said.startswith("Of 2 systems, stsb-dev alone chooses fine_tuned") and said.endswith(f"{optimism:.2f} points of optimism.")
    assert selection_sentence(cells[:1], column="STS-B") == "" and "twitter-pit" not in selection_note(cells)
    assert selection_note([replace(cells[0], chose_and_scored=("twitter-pit",))]).startswith("twitter-pit chose the weights")
    assert selection_sentence([cells[0], replace(cells[1], dev_task="sickr-dev")], column="STS-B") == "", "two dev tasks do not compare"


def test_the_report_shows_selection_tests_and_what_is_exploratory(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _world(tmp_path, tiny_encoder_dir, unfinished=("rcl · seed 2",))
    report = report_sweep(context.store, "tiny")
    line = next(line for line in report.markdown.splitlines() if line.startswith("| rcl (exploratory)"))
    assert "[" in line.split("|")[3], "the interval stands beside the mean"
    assert "Exploratory: rcl has scores of 2 of its 3 trials; the others were stopped early, failed or still run." in report.markdown
    assert "## Chosen on dev, scored on test" in report.markdown and "dev − test" in report.html
    cited = set(re.findall(r"^@\w+\{(\w+),", str(report.files["citations.bib"]), flags=re.MULTILINE))
    assert {"rcl", "infonce", "stsb", "simcse", "pigeonhole", "moderated"} <= cited, "methods, test sets and tests that stand in the page"
    assert not cited & {"ray", "geometry", "deepspeed", "ir_measures"}, "made in this process, without these measures"


def test_each_dev_task_has_its_own_test_task_and_parts_count_as_on_dev() -> None:
    """RSE's Table 5: four dev tasks of SciDocs have one source, and USEB is the mean of four tasks of one, one, two and four parts."""
    trial = next(one for one in shipped_plan(RECIPES / "papers" / "rse_table5.yaml").trials if one.method == "supervised")
    assert isinstance(trial.scores.encoder, Train) and trial.scores.encoder.selection is not None
    selection, tests = trial.scores.encoder.selection, trial.scores.tasks
    of_scidocs = {"scidocs-cite": 10.0, "scidocs-cocite": 90.0, "scidocs-coview": 90.0, "scidocs-coread": 90.0}
    results: dict[str, Json] = {"askubuntu": 50.0, "cqadupstack": 10.0, "twitter-url": 70.0, "twitter-pit": 60.0, **of_scidocs}
    assert scored_on_test(selection, tests, results) == ("+".join(results), pytest.approx((50 + 10 + 65 + 70) / 4))
    relations: dict[str, Json] = {
        f"scidocs-{part}.by.{name}": float(50 + place) for part in ("cite", "cocite", "coview", "coread") for place, name in enumerate("ab")
    }
    assert scored_on_test(selection, tests, results | relations)[1] == pytest.approx((50 + 10 + 65 + 51) / 4)
    assert scored_on_test(selection, tests, results | {"askubuntu": None})[1] is None
    assert scored_on_test(selection, [task for task in tests if task.name != "scidocs-cocite"], results) == (None, None)


def test_a_test_task_of_another_kind_or_source_is_not_the_test_part() -> None:
    for tasks, test in ((["stsb-pooled"], "stsb-pooled"), (["stsb-pooled", "stsb"], "stsb"), (["geometry-stsb"], None), (["sts12"], None)):
        plan = plan_of(small_recipe(selection={"task": "stsb-dev"}, evaluation={"tasks": tasks}))  # type: ignore[dict-item]
        scores = next(trial.scores for trial in plan.trials if trial.method == "fine_tuned")
        assert isinstance(scores.encoder, Train) and scores.encoder.selection is not None
        assert scored_on_test(scores.encoder.selection, scores.tasks, {})[0] == test


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


def test_a_report_is_exploratory_until_fresh_seeds_speak(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _swept(tmp_path, tiny_encoder_dir, confirm_seeds=3)
    exploratory = report_sweep(context.store, "tiny")
    assert "The settings were chosen on dev with the same seeds" in exploratory.lead and "3 seeds" in exploratory.rests_on
    assert (
        "Exploratory: dev chose rcl (learning" in exploratory.markdown and "among 3 cells beside the baseline with" in exploratory.markdown
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
    assert "by 3 fresh seeds of what dev chose among 3 cells beside the baseline (tiny-confirmed): rcl is" in confirmed.markdown


def test_nothing_is_confirmed_unasked_or_without_a_choice(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _swept(tmp_path, tiny_encoder_dir)
    sweep = load_sweep(context.store, "tiny")
    records = sweep.records(context.store)
    cells = challengers(sweep, records)
    assert (cells[0].trials[0].method, cells[0].dev) == ("rcl", 84.0)
    assert confirmation(sweep, records) is None and challengers(sweep, {}) == []
    with pytest.raises(RecipeError, match="confirm_seeds: has no effect"):
        recipe_from_values(tiny_values(tiny_encoder_dir, confirm_seeds=3) | {"selection": None}, where="tiny")
