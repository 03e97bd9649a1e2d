"""What tracking makes of plans and records before any server is asked: parameters, data, metrics, ownership, notes, views."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar
from unittest.mock import Mock

import pytest

from sentdist.plan.corpora import CORPORA
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.tasks import TASK_GROUPS
from sentdist.report.sweep_rows import useb_scores
from sentdist.store.record import Record
from sentdist.store.sweep import sweep_record
from sentdist.tracking.pages import MAX_VARIED, Link, SavedView, stage_note, sweep_note, trial_note, varied_parameters, views
from sentdist.tracking.run_update import TAG_LETTERS, RunLayout, began_ms, closed_ms
from sentdist.tracking.run_values import (
    averages,
    curve_metrics,
    curve_points,
    data_sets,
    final_metrics,
    main_scores,
    metric_name,
    primary_metric,
    shown,
)
from sentdist.tracking.server import add_model_metrics
from sentdist.tracking.sweep_runs import _ended
from sentdist.tracking.sweep_summary import choice_metrics, compared, summary_csv, summary_rows
from sentdist.tracking.tracker import NullRun, TrackedCurve
from tests.support.mlflow_fixtures import grid_sweep, layout_of, small_sweep
from tests.support.planning import plan_of, small_recipe

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


def record(kind: str, *, key: str = "0" * 16, seconds: float = 2.0, **results: Json) -> Record:
    return Record(
        key=key, kind=kind, label="label", place=f"{kind}/label-{key}", stage={}, inputs=(), created_at="2026-01-02T03:04:05Z",
        seconds=seconds, runtime={}, environment={}, results=results, files={},
    )  # fmt: skip


def test_a_trial_repeats_the_parameters_of_its_training_under_the_recipes_names() -> None:
    layout = layout_of(small_sweep("s"))
    trial = next(trial for trial in layout.trials.values() if trial.method == "rcl" and len(trial.stages) > 6)
    found = layout.parameters(trial.key)
    expected = {
        "method": "rcl", "seed": "0", "encoder": "minilm-l6", "corpus": "nli/triplets", "objective.name": "rcl", "objective.temperature": "0.05",
        "training.batch_size": "64", "training.learning_rate": "2e-05", "phis": "{0.01, 0.02}", "num_banks": "2", "selection.task": "stsb-dev",
    }  # fmt: skip
    assert expected.items() <= found.items()
    assert not {"num_regulators", "fold", "stopping"} & set(found)
    bank = next(key for key in layout.shared if layout.kind(key) == "bank")
    assert layout.parameters(bank)["corpus"] == "nli/triplets"


def test_a_training_belongs_to_its_trial_only_if_nobody_else_needs_it() -> None:
    plan = small_sweep("s")
    layout = layout_of(plan)
    for trial in plan.trials:
        train = trial.scores.encoder
        if isinstance(train, Train):
            users = {stage.key for stage in plan.stages if train.key in {needed.key for needed in stage.inputs}}
            assert layout.owner(train.key) == (trial.key if users == {trial.key} else train.key)
        assert layout.owner(trial.key) == trial.key and ":" not in layout.name(trial.key)
    assert set(layout.shared) == {stage.key for stage in plan.stages} - set(layout.trials) - set(layout.own)
    assert {layout.name(key).partition(":")[0] for key in layout.shared} == {"corpus", "training", "bank"}
    for stage in layout.shared:
        assert layout.used_by(stage) == [key for key, trial in layout.trials.items() if stage in trial.stages]
    methods: dict[str, Json] = {name: {"objective": {"name": "info_nce"}} for name in ("one", "two")}
    assert [trial.method for trial in layout_of(plan_of(small_recipe(methods=methods))).trials.values()] == ["one"], (
        "the same stages are one run"
    )
    unknown = RunLayout(sweep=layout.sweep, stages={})
    for one in layout.trials.values():  # a trial stands beside its training, too, where nothing is known of its scores
        assert unknown.made_from(one.key) == [one.train] * (one.train in layout.shared)


def test_the_choice_of_dev_stands_first_and_has_no_mean_where_a_trial_lacks_a_score() -> None:
    plan = plan_of(small_recipe(seeds=[0, 1], evaluation={"tasks": ["stsb"]}, methods={"a": {"objective": {"name": "info_nce"}}}))
    sweep, stages = sweep_record(plan), {stage.key: stage for stage in plan.stages}
    records = {key: Record.of(stage, {}, seconds=1.0, runtime={}, environment={}, results={}) for key, stage in stages.items()}

    def noted(key: str | None, **results: Json) -> None:
        records[str(key)] = records[str(key)].model_copy(update={"results": results})

    for trial, dev, test in zip(sweep.trials, (90.0, 80.0), (60.0, 70.0), strict=True):
        noted(trial.train, best_dev_score=dev)
        noted(trial.key, stsb=test)
    assert [(row.dev, row.scores["stsb"]) for row in summary_rows(sweep, records)] == [(90.0, 60.0), (80.0, 70.0)]
    assert choice_metrics(sweep, records) == {"best_dev_score": 85.0, "stsb": 65.0}
    for first, second, order in ((90.0, None, [90.0, None]), (None, -5.0, [-5.0, None])):  # what dev knows nothing of stands last
        noted(sweep.trials[0].train, best_dev_score=first)
        noted(sweep.trials[1].train, best_dev_score=second)
        assert [row.dev for row in summary_rows(sweep, records)] == order
    noted(sweep.trials[0].train, best_dev_score=90.0)
    noted(sweep.trials[1].train, best_dev_score=80.0)
    noted(sweep.trials[0].key, stsb=None)
    assert choice_metrics(sweep, records) == {"best_dev_score": 85.0}


def test_trials_are_compared_with_the_baseline_and_methods_have_means_of_two_digits() -> None:
    trained: dict[str, Json] = {name: {"objective": {"name": "info_nce", "temperature": t}} for name, t in (("a", 0.05), ("b", 0.1))}
    plan = plan_of(small_recipe(seeds=[0, 1, 2], evaluation={"tasks": ["stsb"]}, methods={"base": {}, **trained}, baseline="a"))
    sweep = sweep_record(plan)
    scores = {"base": [70.0], "a": [77.1, 77.4, 77.2], "b": [78.3, 78.0, 78.4]}
    left = {name: iter(own) for name, own in scores.items()}
    records = {trial.key: record("scores", key=trial.key, stsb=next(left[trial.method])) for trial in sweep.trials}
    of_trials, of_cells = compared(sweep, records)
    vs = "stsb_vs_a"
    assert [of_trials[trial.key] for trial in sweep.trials if trial.method != "a"] == [{vs: -7.23}, {vs: 1.07}, {vs: 0.77}, {vs: 1.17}]
    assert of_cells["b"] == {"stsb": 78.23, "stsb_sd": 0.21, vs: 1.0, "num_trials": 3}
    assert of_cells["base"] == {"stsb": 70.0, vs: -7.23, "num_trials": 1}
    untouched = sweep.model_copy(update={"baseline": None})
    assert compared(untouched, records)[0][sweep.trials[-1].key] == {"stsb_vs_base": 8.4}
    del records[next(trial.key for trial in sweep.trials if trial.method == "a")]
    of_trials, of_cells = compared(sweep, records)
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
    of_tasks = {("sts",): "avg_sts", ("stsb",): "stsb", ("stsb", "sickr"): "avg", ("stackfaq", "sts"): "avg_sts", ("useb",): "avg_useb"}
    assert {tasks: primary_metric(list(tasks)) for tasks in of_tasks} == of_tasks


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
    client = Mock()
    add_model_metrics(client, "run", "model", main_scores(record("scores", **{"stsb": 79.92685123, "stsb.pearson": 80.1})))
    (metric,) = client.log_batch.call_args.kwargs.get("metrics") or client.log_batch.call_args.args[1]
    assert (metric.key, metric.value) == ("stsb", 79.93), "as on its run"
    made = record("train", seconds=2.5)  # at 2026-01-02T03:04:05Z
    assert (began_ms(made), closed_ms(made)) == (1767323042500, 1767323045000)
    assert metric_name("a@b,c") == "a_at_b_c" and curve_points('{"step": 3, "loss": 0.5, "at": 1.25}\n') == [("loss", 0.5, 1250, 3)]
    assert [shown(number) for number in (123.456, 1.23456, 0.000123456)] == [123.46, 1.235, 0.0001235]
    assert curve_metrics({"step": 5, "loss": 1.5, "lr": 0.0, "grad_norm": math.inf, "at": 12.0, "task": "stsb-dev"}) == {
        "loss": 1.5,
        "learning_rate": 0.0,
    }


def test_a_trials_note_as_it_stands() -> None:
    trial = sweep_record(small_sweep("s")).trials[0].model_copy(update={"name": "RCL *new* | seed_0"})
    trained = record("train", num_steps=20, best_step=10, best_dev_score=77.126, stopped_early=True)
    shared = [Link(name="nli", kind=CORPORA[0].kind, url="#/n"), Link(name="bank_", kind="bank", url=None)]
    sweep = Link(name="s", kind="sweep", url="#/s")
    note = trial_note(trial, sweep=sweep, train=trained, scores=record("scores", stsb=80.0), address="/a_b", shared=shared, reason=None)
    assert (
        note
        == """**RCL \\*new\\* \\| seed_0**, a trial of [s](#/s).

| stsb |
|:--|
| 80.00 |

Scores × 100 on the test sets.

Trained 20 steps in 2 s and stopped early; the weights of step 10 were kept (dev score 77.13).

Encoder: `/a_b`; it loads with `SentenceTransformer(path)`.

Made from:

- corpus [nli](#/n)
- bank of embeddings bank\\_"""
    )
    undefined = trial_note(trial, sweep=sweep, train=None, scores=record("scores", stsb=None), address=None, shared=(), reason=None)
    assert undefined == "**RCL \\*new\\* \\| seed_0**, a trial of [s](#/s)."
    failed = trial_note(trial, sweep=sweep, train=None, scores=None, address=None, shared=(), reason="out of memory")
    assert "Ended without scores: out of memory" in failed
    stage = stage_note("nli", "corpus", sweep=sweep, record=None, address=None, trials=[sweep], made_from=(), reason="no such file")
    assert "a corpus that 1 trial of [s](#/s) uses" in stage and "no such file" in stage


def test_how_a_sweep_ended_is_reported_by_what_it_has() -> None:
    assert [_ended(None, is_complete=one) for one in (True, False)] == ["FINISHED", "FAILED"]
    assert [_ended("failed", is_complete=one) for one in (True, False)] == ["FAILED", "FAILED"]
    assert [_ended("stopped", is_complete=one) for one in (True, False)] == ["FINISHED", "KILLED"]


def test_each_line_of_a_history_is_reported_once() -> None:
    class Run(NullRun):
        reported: ClassVar[list[tuple[int, dict[str, float]]]] = []

        def metrics(self, values: Mapping[str, float], *, step: int) -> None:
            self.reported.append((step, dict(values)))

    history: list[dict[str, Json]] = [{"step": step, "loss": step / 10, "at": 1.0, "task": "stsb-dev"} for step in (1, 2)]
    curve = TrackedCurve(Run(), history, num_sent=1)
    curve.follow()
    history.append({"step": 3, "loss": 0.3})
    curve.follow()
    assert Run.reported == [(2, {"loss": 0.2}), (3, {"loss": 0.3})]


def test_notes_of_a_large_sweep_are_whole() -> None:
    """MLflow cuts a note after 8000 letters: what comes after the table would be lost."""
    layout = layout_of(grid_sweep("large", num_trials=300))
    records = {key: record("scores", key=key, **dict.fromkeys(STS, 80.0)) for key in layout.trials}
    url = f"#/experiments/1/runs/{'0' * 32}?workflowType=machine_learning"
    links = {trial.key: Link(name=trial.name, kind="scores", url=url) for trial in layout.trials.values()}
    note = sweep_note(layout.sweep, records, trials=links, views=[], store="/store")
    assert len(note) < TAG_LETTERS and note.endswith("Artifacts: `/store`")
    assert note.startswith("**300 of 300 trials are scored.**") and "The other 270 are in `summary.csv`" in note
    assert f"{len(layout.sweep.places)} stages instead of the {sum(layout.sweep.mentions.values())} that the trials need" in note
    lines = summary_csv(summary_rows(layout.sweep, records)).splitlines()
    assert lines[0].startswith("trial,method,seed,fold,dev_score,avg_sts,sts12") and len(lines) == 301
    link = Link(name="large", kind="sweep", url=url)
    stage = stage_note("nli", "corpus", sweep=link, record=None, address="a", trials=list(links.values()), made_from=(), reason=None)
    assert len(stage) < TAG_LETTERS and stage.endswith("- and 270 more")


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


def test_the_score_that_orders_the_trials_is_the_first_column() -> None:
    given = {"order": "best_dev_score", "metric": "avg_sts", "scores": ["avg_sts", "sts12"], "trials": TRIALS}
    trials, charts, *_ = views(**given)  # type: ignore[arg-type]
    assert trials.state["selectedColumns"][:3] == ["metrics.`best_dev_score`", "metrics.`avg_sts`", "metrics.`sts12`"]  # type: ignore[index]
    assert trials.state["selectedColumns"][-1] == "params.`phis`"  # type: ignore[index]
    assert (trials.state["orderByKey"], trials.state["orderByAsc"]) == ("metrics.`best_dev_score`", False)
    assert charts.id == "sentdist-charts"  # one trial a method: no means
    trials, methods, charts, *_ = views(**given, means=["avg_sts_sd"], difference="avg_sts_vs_base")  # type: ignore[arg-type]
    first = ["metrics.`best_dev_score`", "metrics.`avg_sts`", "metrics.`avg_sts_vs_base`"]
    assert trials.state["selectedColumns"][:3] == first  # type: ignore[index]
    assert methods.state["selectedColumns"] == [*first, "metrics.`avg_sts_sd`", "metrics.`sts12`"]
    assert charts.state["compareRunCharts"][0]["metricKey"] == "avg_sts_vs_base"  # type: ignore[index, call-overload]


def test_every_chart_lies_in_a_section_that_is_open() -> None:
    charted = [view for view in views(order="stsb", metric="stsb", scores=["stsb"], trials=TRIALS) if view.mode == "CHART"]
    assert [view.id for view in charted] == ["sentdist-charts", "sentdist-parallel"]
    for charts in charted:
        _check_cards(charts)
    (card,) = charted[1].state["compareRunCharts"]  # type: ignore[misc]
    assert card["selectedParams"] == ["phis"] and card["showAllRuns"]  # type: ignore[index, call-overload]
    alike = [{"method": "a", "seed": "0"}, {"method": "b", "seed": "1"}]
    *others, stages = views(order="stsb", metric="stsb", scores=["stsb"], trials=alike)
    assert "sentdist-parallel" not in [view.id for view in others]
    assert (stages.id, stages.state["orderByKey"], stages.state["orderByAsc"]) == ("sentdist-stages", "params.`kind`", True)


def _check_cards(charts: SavedView) -> None:
    cards, sections = charts.state["compareRunCharts"], charts.state["compareRunSections"]
    assert isinstance(cards, list) and isinstance(sections, list)
    opened = {section["uuid"] for section in sections if section["display"]}  # type: ignore[index, call-overload]
    assert {card["metricSectionId"] for card in cards} == opened  # type: ignore[index, call-overload]
    assert len({card["uuid"] for card in cards}) == len(cards)  # type: ignore[index, call-overload]
