"""A report keeps dev and test apart, and marks what is no evidence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.unroll import Plan, Trial
from sentdist.report.citations import works_of_sweep
from sentdist.report.score_rows import TableRows
from sentdist.report.selection import ChosenCell, chosen_cells, scored_on_test, selection_note, selection_rows, selection_sentence
from sentdist.report.sweep_report import report_sweep
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import ResultTable, build_table
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
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


def test_a_test_set_that_chose_the_weights_is_named() -> None:
    whole = ChosenCell(label="a", dev_task="askubuntu-dev+twitter-pit", dev=50.0, test_task=None, test=None, headline=None)
    assert selection_note([whole]).startswith("Weights are chosen by the dev score, never by a test score.")
    said = selection_note([whole, replace(whole, label="b", chose_and_scored=("twitter-pit",))])
    assert said.startswith("twitter-pit chose the weights and is scored as test, too: those scores flatter.")


def test_choosing_on_test_is_reported_as_optimism(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _world(tmp_path, tiny_encoder_dir)
    table, sweep = _table(context)
    cells = chosen_cells(sweep, sweep.records(context.store), table)
    said = selection_sentence(cells, column="STS-B")
    optimism = (cells[1].headline or 0) - (cells[0].headline or 0)
    assert said.startswith("Of 2 systems, stsb-dev alone chooses fine_tuned") and said.endswith(f"{optimism:.2f} points of optimism.")
    assert selection_sentence(cells[:1], column="STS-B") == ""
    assert selection_sentence([cells[0], replace(cells[1], dev_task="sickr-dev")], column="STS-B") == "", "two dev tasks do not compare"


def test_the_report_shows_selection_tests_and_what_is_exploratory(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _world(tmp_path, tiny_encoder_dir, unfinished=("rcl · seed 2",))
    report = report_sweep(context.store, "tiny")
    line = next(line for line in report.markdown.splitlines() if line.startswith("| rcl (exploratory)"))
    assert "[" in line.split("|")[3], "the interval stands beside the mean"
    assert "Exploratory: rcl has scores of 2 of its 3 trials; the others were stopped early, failed or still run." in report.markdown
    assert "## Chosen on dev, scored on test" in report.markdown and "dev − test" in report.html
    assert '<details class="part"><summary>All differences from fine_tuned' in report.html
    assert "exploratory" in str(report.files["table1.csv"]).splitlines()[0]
    cited = set(re.findall(r"^@\w+\{(\w+),", str(report.files["citations.bib"]), flags=re.MULTILINE))
    assert {"rcl", "infonce", "stsb", "simcse", "pigeonhole", "moderated"} <= cited, "methods, test sets and tests that stand in the page"
    assert not cited & {"ray", "geometry", "deepspeed", "ir_measures"}, "made in this process, without these measures"


def test_what_dev_chose_is_reported_by_the_measure_that_leads_the_table(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    plan = plan_of(small_recipe(evaluation={"tasks": ["stackfaq"]}, baseline="base"))
    fill_store(store, plan, noise=lambda trial: NOISE[trial.method], dev=lambda trial: BY_DEV[trial.method], num_items={"stackfaq": 20})
    page = report_sweep(store, "small").markdown
    score = (
        load_sweep(store, "small")
        .records(store)[next(one.key for one in plan.trials if one.method == "fine_tuned")]
        .results["stackfaq.map"]
    )
    assert f"stsb-dev alone chooses fine_tuned: its test score (stackfaq:map) is {score:.2f}." in page


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


@pytest.mark.parametrize(
    ("dev", "tasks", "test"),
    [
        ("stsb-dev", ["stsb-pooled"], "stsb-pooled"),
        ("stsb-dev", ["stsb-pooled", "stsb"], "stsb"),
        ("stsb-dev", ["geometry-stsb"], None),
        ("stsb-dev", ["sts12"], None),
    ],
)
def test_a_test_task_of_another_kind_or_source_is_not_the_test_part(dev: str, tasks: Json, test: str | None) -> None:
    plan = plan_of(small_recipe(selection={"task": dev}, evaluation={"tasks": tasks}))
    scores = next(trial.scores for trial in plan.trials if trial.method == "fine_tuned")
    assert isinstance(scores.encoder, Train) and scores.encoder.selection is not None
    assert scored_on_test(scores.encoder.selection, scores.tasks, {})[0] == test


@pytest.mark.parametrize(
    ("runtime", "environment", "cited"),
    [
        ({"workers": 1, "engine": "deepspeed"}, {}, set()),
        ({"workers": 2, "engine": "torch"}, {}, {"ray"}),
        ({"workers": 2, "engine": "deepspeed"}, {}, {"ray", "deepspeed"}),
        ({"workers": 1, "engine": "torch"}, {"executed by": "ray"}, {"ray"}),
    ],
)
def test_what_carried_a_training_out_is_cited(
    runtime: dict[str, Json], environment: dict[str, str], cited: set[str], tmp_path: Path, tiny_encoder_dir: Path
) -> None:
    _, context = _world(tmp_path, tiny_encoder_dir, seeds=1)
    sweep = load_sweep(context.store, "tiny")
    records = {
        key: one.model_copy(update={"runtime": runtime, "environment": environment}) for key, one in sweep.records(context.store).items()
    }
    found = sweep_rows(sweep, context.store, records)
    assert {"ray", "deepspeed"} & set(works_of_sweep(found, records, [])) == cited


def test_a_dev_score_of_zero_is_a_point_of_its_curve(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    dev = {"fine_tuned": 0.0, "rcl": 70.0}
    fill_store(context.store, plan, noise=lambda trial: 1.0, dev=lambda trial: dev[trial.method], num_items={"stsb": 20}, num_steps=4)
    sweep = load_sweep(context.store, "tiny")
    curves = sweep_rows(sweep, context.store, sweep.records(context.store)).curves
    assert {curve.label: (curve.dev_steps, curve.dev_scores) for curve in curves} == {"fine_tuned": ([3], [0.0]), "rcl": ([3], [70.0])}


def test_one_run_each_has_intervals_over_items(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    _, context = _world(tmp_path, tiny_encoder_dir, seeds=1)
    table, _ = _table(context)
    cell = table.line("rcl").cells["STS-B"]
    assert cell.interval is not None and cell.interval.about == "items" and cell.summary is not None
    assert cell.interval.low < cell.summary.mean < cell.interval.high
    comparison = next(one for one in table.comparisons if (one.system, one.relation) == ("rcl", "baseline"))
    found = comparison.differences["STS-B"]
    assert found.about == "items" and found.p is not None and found.p < 0.01 and "other seeds were not tried" in table.verdicts["rcl"]


def test_fewer_seeds_than_others_are_exploratory(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    def trial_is_late(trial: Trial) -> bool:
        return trial.method == "rcl" and trial.seed == 1

    plan, context = tiny_plan(tiny_values(tiny_encoder_dir, seeds=[0, 1]), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    fill_store(context.store, plan, noise=lambda trial: NOISE[trial.method], skip=trial_is_late, num_items={"stsb": 60})
    sweep = load_sweep(context.store, "tiny")
    found = sweep_rows(sweep, context.store, sweep.records(context.store))
    table = build_table(
        TableRows(title="t", rows=found.of_kind("sts"), columns=["STS-B"], average=False, measure=TASK_KINDS["sts"].main),
        baseline="fine_tuned",
    )
    assert table.line("rcl").exploratory == "rcl has 1 seed, others have 2"
    assert table.line("fine_tuned").exploratory == "" and table.line("base").exploratory == ""
    assert table.verdicts["rcl"].endswith("Exploratory: rcl has 1 seed, others have 2.")


@pytest.mark.parametrize(("headline", "first"), [(None, "fine_tuned"), ("words", "words")])
def test_a_report_opens_with_what_was_trained_unless_the_recipe_says_otherwise(
    headline: str | None, first: str, tmp_path: Path, tiny_encoder_dir: Path
) -> None:
    methods: Json = {"words": {"lexical": "word_overlap"}, "base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}}
    values = tiny_values(tiny_encoder_dir, methods=methods, baseline="base", about="Does it help?", headline=headline)
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 300})
    made = report_sweep(context.store, "tiny")
    finding, about = made.markdown.splitlines()[2], next(line for line in made.markdown.splitlines() if line == "Does it help?")
    assert finding.startswith((f"{first} is ", f"base is not shown to differ from {first}"))
    assert about == "Does it help?"
    assert re.search(r"<dt>data</dt><dd>nli/triplets</dd>.*<dt>batch</dt><dd>8</dd>.*<dt>rate</dt><dd>0.001</dd>", made.html, re.DOTALL)
