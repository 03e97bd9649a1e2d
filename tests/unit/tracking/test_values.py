"""What runs show of plans and records before any server is asked: parameters, metrics, comparisons, views."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sentdist.recipe.stage import Json
from sentdist.report.sweep_rows import useb_scores
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_record
from sentdist.tasks.cards import TASK_GROUPS
from sentdist.tracking.runs import SearchRuns
from sentdist.tracking.values import (
    averages,
    began_ms,
    choice_metrics,
    closed_ms,
    curve_of,
    curve_points,
    differences,
    final_metrics,
    means,
    metric_name,
    shown,
    sweep_metric,
)
from sentdist.tracking.views import MAX_VARIED, SavedView, sweep_views, varied_parameters
from tests.support.mlflow_fixtures import runs_of, small_sweep
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_searches import made_up_search

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


def record(kind: str, *, key: str = "0" * 16, seconds: float = 2.0, **results: Json) -> Record:
    return Record(
        key=key, kind=kind, label="label", place=f"{kind}/label-{key}", stage={}, inputs=(), created_at="2026-01-02T03:04:05Z",
        seconds=seconds, runtime={}, environment={}, results=results, files={},
    )  # fmt: skip


def test_a_trial_repeats_the_parameters_of_its_training_under_the_recipes_names() -> None:
    runs = runs_of(small_sweep("s"))
    trial = next(trial for trial in runs.trials.values() if trial.method == "rcl" and len(trial.stages) > 6)
    found = runs.parameters[trial.key]
    expected = {
        "method": "rcl", "seed": "0", "encoder": "minilm-l6", "corpus": "nli/triplets", "objective.name": "rcl", "objective.temperature": "0.05",
        "training.batch_size": "64", "training.learning_rate": "2e-05", "phis": "{0.01, 0.02}", "num_banks": "2", "selection.task": "stsb-dev",
    }  # fmt: skip
    assert expected.items() <= found.items()
    assert not {"num_regulators", "fold", "stopping"} & set(found)


def test_the_choice_of_dev_has_no_mean_where_a_trial_lacks_a_score() -> None:
    plan = plan_of(small_recipe(seeds=[0, 1], evaluation={"tasks": ["stsb"]}, methods={"a": {"objective": {"name": "info_nce"}}}))
    sweep, stages = sweep_record(plan), {stage.key: stage for stage in plan.stages}
    records = {key: Record.of(stage, {}, seconds=1.0, runtime={}, environment={}, results={}) for key, stage in stages.items()}

    def noted(key: str | None, **results: Json) -> None:
        records[str(key)] = records[str(key)].model_copy(update={"results": results})

    for trial, dev, test in zip(sweep.trials, (90.0, 80.0), (60.0, 70.0), strict=True):
        noted(trial.train, best_dev_score=dev)
        noted(trial.key, stsb=test)
    assert choice_metrics(sweep, records) == {"best_dev_score": 85.0, "stsb": 65.0}
    noted(sweep.trials[0].key, stsb=None)
    assert choice_metrics(sweep, records) == {"best_dev_score": 85.0}


def test_trials_are_compared_with_the_baseline_and_methods_have_means_of_two_digits() -> None:
    trained: dict[str, Json] = {name: {"objective": {"name": "info_nce", "temperature": t}} for name, t in (("a", 0.05), ("b", 0.1))}
    plan = plan_of(small_recipe(seeds=[0, 1, 2], evaluation={"tasks": ["stsb"]}, methods={"base": {}, **trained}, baseline="a"))
    sweep = sweep_record(plan)
    scores = {"base": [70.0], "a": [77.1, 77.4, 77.2], "b": [78.3, 78.0, 78.4]}
    left = {name: iter(own) for name, own in scores.items()}
    records = {trial.key: record("scores", key=trial.key, stsb=next(left[trial.method])) for trial in sweep.trials}
    of_trials, of_cells = differences(sweep, records), means(sweep, records)
    vs = "stsb_vs_a"
    assert [of_trials[trial.key] for trial in sweep.trials if trial.method != "a"] == [{vs: -7.23}, {vs: 1.07}, {vs: 0.77}, {vs: 1.17}]
    assert of_cells["b"] == {"stsb": 78.23, "stsb_sd": 0.21, vs: 1.0, "num_trials": 3}
    assert of_cells["base"] == {"stsb": 70.0, vs: -7.23, "num_trials": 1}
    untouched = sweep.model_copy(update={"baseline": None})
    assert differences(untouched, records)[sweep.trials[-1].key] == {"stsb_vs_base": 8.4}
    del records[next(trial.key for trial in sweep.trials if trial.method == "a")]
    of_trials, of_cells = differences(sweep, records), means(sweep, records)
    assert (of_trials, set(of_cells)) == ({}, {"base", "b"}), "without the whole baseline there is no difference"


def test_averages_are_of_scores_on_one_scale() -> None:
    """Over all seven of STS, USEB's over its four tasks, and over what may choose a checkpoint together."""
    assert averages(dict.fromkeys(STS, 70.0) | {"sickr": 77.0}) == {"avg_sts": 71.0}
    assert averages({"stsb": 80.0, "sickr": 70.0}) == {"avg": 75.0} == averages({"sts-my-pairs-test": 80.0, "sts-my-others": 70.0})
    assert averages({"pairs-my-judged": 80.0, "reranking-my-candidates": 60.0}) == {"avg": 70.0}
    assert averages({"scenes-sts": 80.0, "scenes-faq": 40.0}) == {}, "a correlation and a precision have no mean"
    assert averages({"stsb": 80.0}) == averages({"stsb": 80.0, "of-another-version": 60.0}) == {}
    useb = {task: float(place) for place, task in enumerate(TASK_GROUPS["useb"])}
    assert averages(useb)["avg_useb"] == pytest.approx(useb_scores(useb)["Avg"]) and {"avg_twitter", "avg_scidocs"} < averages(useb).keys()
    for tasks, metric in ((["sts"], "avg_sts"), (["stsb"], "stsb"), (["stsb", "sickr"], "avg"), (["stackfaq", "sts"], "avg_sts")):
        assert sweep_metric(sweep_record(plan_of(small_recipe(evaluation={"tasks": tasks})))) == metric


def test_metrics_are_finite_numbers_under_names_that_a_server_takes() -> None:
    found = final_metrics(
        record("scores", **{"stackfaq": 50.0, "stackfaq.acc@1": 41.0, "stackfaq.map": 0.0, "worst": None, "bad": math.nan, "text": "x"})
    )
    assert found == {"stackfaq": 50.0, "stackfaq.acc_at_1": 41.0, "stackfaq.map": 0.0, "scores_s": 2.0}
    assert final_metrics(record("scores", **{"stsb": 80.0, "stsb.spearman": 80.0, "stsb.pearson": 79.0})) == {
        "stsb": 80.0,
        "stsb.pearson": 79.0,
        "scores_s": 2.0,
    }
    trained = final_metrics(record("train", sentences_per_s=400.0, stopped_early=True, **{"seconds.forward": 1.5}))
    assert trained == {"mean_sentences_per_s": 400.0, "stopped_early": 1.0, "time.forward_s": 1.5, "train_s": 2.0}
    made = record("train", seconds=2.5)  # at 2026-01-02T03:04:05Z
    assert (began_ms(made), closed_ms(made)) == (1767323042500, 1767323045000)
    assert metric_name("a@b,c") == "a_at_b_c" and curve_of('{"step": 3, "loss": 0.5, "at": 1.25}\n') == [("loss", 0.5, 1250, 3)]
    assert [shown(number) for number in (123.456, 1.23456, 0.000123456)] == [123.46, 1.235, 0.0001235]
    line: dict[str, Json] = {"step": 5, "loss": 1.5, "lr": 0.0, "grad_norm": math.inf, "at": 12.0, "task": "stsb-dev"}
    assert [(point.name, point.value) for point in curve_points([line])] == [("loss", 1.5), ("learning_rate", 0.0)]


TRIALS = [
    {"method": "base", "cell": "base", "encoder": "minilm"},
    {"method": "rcl", "cell": "rcl (phis={0.01})", "encoder": "minilm", "phis": "0.01", "seed": "0"},
    {"method": "rcl", "cell": "rcl (phis={0.01})", "encoder": "minilm", "phis": "0.01", "seed": "1"},
    {"method": "rcl", "cell": "rcl (phis={0.02})", "encoder": "minilm", "phis": "0.02", "seed": "0"},
]


def test_parameters_that_differ_come_first_and_constants_not_at_all() -> None:
    assert varied_parameters(TRIALS) == ("method", "seed", "phis")
    wide = [{f"p{number}": str(number * trial) for number in range(30)} for trial in (1, 2)]
    assert len(varied_parameters(wide)) == MAX_VARIED
    assert varied_parameters(TRIALS[:1]) == ()


def test_the_score_that_orders_the_trials_is_the_first_column_and_no_bar_starts_far_from_its_value() -> None:
    sweep = runs_of(small_sweep("s")).sweep
    trials, charts = sweep_views(sweep, TRIALS)  # one trial a method: no means
    assert (trials.state["orderByKey"], trials.state["orderByAsc"]) == ("metrics.`best_dev_score`", False)
    columns = trials.state["selectedColumns"]
    assert isinstance(columns, list)
    assert columns[:4] == ["metrics.`best_dev_score`", "metrics.`avg_sts`", "metrics.`avg_sts_vs_base`", "metrics.`sts12`"]
    assert columns[-1] == "params.`phis`"
    assert [card["metricKey"] for card in cards_of(charts) if card["type"] == "BAR"] == ["avg_sts_vs_base"]
    alone = sweep.model_copy(update={"trials": tuple(trial for trial in sweep.trials if trial.train is not None), "baseline": None})
    assert [card["type"] for card in cards_of(sweep_views(alone, TRIALS)[-1])] == ["LINE", "LINE", "SCATTER"]
    seeds = runs_of(plan_of(small_recipe(seeds=[0, 1], methods={"base": {}, "a": {"objective": {"name": "info_nce"}}}))).views
    assert [view.name for view in seeds] == ["Trials, best first", "Methods, mean over seeds", "Charts of the trials"]


def test_each_method_of_a_search_has_parallel_coordinates_of_its_fields() -> None:
    table, charts = SearchRuns(made_up_search(samples=2), ArtifactStore("/nowhere")).views
    assert "tags.`sentdist.state`" in str(table.state["selectedColumns"])
    fields = [card["selectedParams"] for card in cards_of(charts) if card["type"] == "PARALLEL"]
    assert fields == [["log10 learning_rate"], ["log10 learning_rate", "phis", "regulator_weight"]]


def cards_of(charts: SavedView) -> list[dict[str, Any]]:
    """The cards of a view, each of its own and in a section that is open."""
    cards: Any = charts.state["compareRunCharts"]
    sections: Any = charts.state["compareRunSections"]
    assert {card["metricSectionId"] for card in cards} == {section["uuid"] for section in sections if section["display"]}
    assert len({card["uuid"] for card in cards}) == len(cards)
    return list(cards)
