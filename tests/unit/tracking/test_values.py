"""What tracking makes of plans and records before any server is asked: parameters, metrics, ownership, notes."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from sentdist.plan.corpora import CORPORA
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.tasks import TASK_GROUPS
from sentdist.report.sweep_rows import useb_scores
from sentdist.store.record import Record
from sentdist.store.sweep import sweep_record
from sentdist.tracking.mlflow_tracker import MlflowRun
from sentdist.tracking.pages import Link, stage_note, sweep_note, trial_note
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
from sentdist.tracking.sweep_summary import choice_metrics, compared, summary_csv, summary_rows, sweep_metric, sweep_scores
from sentdist.tracking.tracker import NullRun, RunOutcome, TrackedCurve
from tests.support.mlflow_fixtures import grid_sweep, layout_of, small_sweep
from tests.support.planning import RECIPES, plan_of, shipped_plan, small_recipe

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
    assert "num_regulators" not in found, "reports count two regulators a bank, as the paper does"
    assert "fold" not in found
    assert "stopping" not in found


def test_a_sum_and_its_corpora_are_reported_in_flat_parameters() -> None:
    layout = layout_of(shipped_plan(RECIPES / "combinations.yaml"))
    rows = {trial.method: layout.parameters(trial.key) for trial in layout.trials.values()}
    expected = {
        "objective.name": "rse + regulators", "objective.regulators.weight": "0.1", "objective.rse.temperature": "0.05", "phis": "{-0.3, 0.3}",
        "corpus": "nli/snli + nli/mnli + pairs/qqp_duplicates",
    }  # fmt: skip
    assert expected.items() <= rows["rse_rcl"].items()
    assert rows["regression_on_rcl"]["start"] == "rcl"
    assert ("sts/sick (train)", "sha256:0000000000000000", "train") in data_sets(
        layout.stages[next(trial.key for trial in layout.trials.values() if trial.method == "regression")]
    )
    goes_on = next(layout.stages[str(trial.train)] for trial in layout.trials.values() if trial.method == "regression_on_rcl")
    assert isinstance(goes_on, Train) and isinstance(goes_on.start, Train)
    assert set(data_sets(goes_on.corpus)) < set(data_sets(goes_on)) > set(data_sets(goes_on.start.corpus)), "what its start was trained on"


def test_an_entropy_encoder_shows_its_phi_of_either_sign() -> None:
    methods: dict[str, Json] = {"entropy": {"objective": {"name": "entropy", "phi": -0.02}}}
    plan = plan_of(small_recipe(methods=methods))
    layout = layout_of(plan)
    assert layout.parameters(plan.trials[0].key)["phi"] == "-0.02"


def test_a_fold_is_a_parameter() -> None:
    methods: dict[str, Json] = {"fine_tuned": {"objective": {"name": "info_nce"}}}
    changes: dict[str, Json] = {"corpus": {"source": "retrieval/stackfaq"}, "folds": {"num": 3}, "evaluation": {"tasks": ["stackfaq"]}}
    plan = plan_of(small_recipe(methods=methods, selection={"task": "stackfaq"}, **changes))
    layout = layout_of(plan)
    assert [layout.parameters(trial.key)["fold"] for trial in plan.trials] == ["0", "1", "2"]
    corpora = [stage for stage in plan.stages if isinstance(stage, RowsCorpus)]
    assert [layout.parameters(stage.key)["fold"] for stage in corpora] == ["0", "1", "2"]


def test_an_unfinished_sweep_that_is_read_back_has_the_parameters_that_are_known() -> None:
    plan = small_sweep("s")
    layout = RunLayout(sweep=sweep_record(plan), stages={})
    assert layout.parameters(plan.trials[-1].key) == {"method": "rcl", "cell": "RCL (phis={0.01, 0.02})", "seed": "0"}
    assert layout.parameters(plan.stages[1].key) == {}
    assert layout.data_sets(plan.trials[-1].key) == []


def test_a_training_belongs_to_its_trial_only_if_nobody_else_needs_it() -> None:
    plan = small_sweep("s")
    layout = layout_of(plan)
    for trial in plan.trials:
        train = trial.scores.encoder
        if isinstance(train, Train):
            users = {stage.key for stage in plan.stages if train.key in {needed.key for needed in stage.inputs}}
            assert layout.owner(train.key) == (trial.key if users == {trial.key} else train.key)
        assert layout.owner(trial.key) == trial.key
    assert set(layout.shared) == {stage.key for stage in plan.stages} - set(layout.trials) - set(layout.own)
    unknown = RunLayout(sweep=layout.sweep, stages={})
    for one in layout.trials.values():  # a trial stands beside its training, too, where nothing is known of its scores
        assert unknown.made_from(one.key) == [one.train] * (one.train in layout.shared)


def test_two_methods_that_come_to_the_same_stages_are_one_run() -> None:
    methods: dict[str, Json] = {name: {"objective": {"name": "info_nce"}} for name in ("one", "two")}
    layout = layout_of(plan_of(small_recipe(methods=methods)))
    assert len(layout.sweep.trials) == 2
    assert [trial.method for trial in layout.trials.values()] == ["one"]


def test_a_shared_stage_leads_back_to_every_trial_that_needs_it() -> None:
    layout = layout_of(plan_of(small_recipe()))
    for stage in layout.shared:
        assert layout.used_by(stage) == [key for key, trial in layout.trials.items() if stage in trial.stages]
    assert max(len(layout.used_by(stage)) for stage in layout.shared) > 1


def test_a_bank_shows_the_corpus_that_it_embeds() -> None:
    methods: Json = {
        "entropy": {"objective": {"name": "entropy", "phi": 0.01}},
        "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "corpus": "few"},
    }
    layout = layout_of(plan_of(small_recipe(methods=methods, corpora={"few": {"source": "nli/triplets", "limit": 5000}})))
    bank = next(key for key in layout.shared if layout.kind(key) == "bank")
    assert layout.parameters(bank)["corpus.limit"] == "5000"


def test_points_of_a_curve_have_milliseconds_and_figures_two_digits_after_the_point() -> None:
    assert curve_points('{"step": 3, "loss": 0.5, "at": 1.25}\n') == [("loss", 0.5, 1250, 3)]
    assert [shown(number) for number in (123.456, 1.23456, 0.000123456)] == [123.46, 1.235, 0.0001235]


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


def test_nothing_is_common_to_one_trial_or_to_trials_that_are_not_all_known() -> None:
    one = layout_of(plan_of(small_recipe(methods={"alone": {"objective": {"name": "info_nce"}}})))
    assert one.common_data_sets == () and len(one.data_sets(next(iter(one.trials)))) > 2
    plan = small_sweep("s")
    known = {stage.key: stage for stage in plan.stages if stage.key != plan.trials[-1].scores.key}
    assert RunLayout(sweep=sweep_record(plan), stages=known).common_data_sets == ()


def test_the_average_over_sts_needs_all_seven() -> None:
    scores = dict.fromkeys(STS, 70.0) | {"sickr": 77.0}
    assert averages(scores) == {"avg_sts": 71.0}
    assert averages({"stsb": 80.0, "sickr": 70.0}) == {"avg": 75.0}
    assert averages({"scenes-sts": 80.0, "scenes-faq": 40.0}) == {}, "a correlation and a precision have no mean"
    assert averages({"stsb": 80.0}) == {}


def test_the_average_over_useb_is_that_of_its_table() -> None:
    """Over four tasks, which are of three kinds with scores on one scale."""
    scores = {task: float(place) for place, task in enumerate(TASK_GROUPS["useb"])}
    found = averages(scores)
    assert found["avg_useb"] == pytest.approx(useb_scores(scores)["Avg"])
    assert {"avg_twitter", "avg_scidocs"} < found.keys() and primary_metric(["useb"]) == "avg_useb"


def test_what_may_choose_a_checkpoint_together_has_an_average() -> None:
    assert averages({"pairs-my-judged": 80.0, "reranking-my-candidates": 60.0}) == {"avg": 70.0}
    assert averages({"stsb": 80.0, "of-another-version": 60.0}) == {}


def test_tasks_of_ones_own_go_by_the_names_under_which_they_are_scored() -> None:
    """A recipe says sts=my/pairs@test, records and runs sts-my-pairs-test."""
    sweep = sweep_record(small_sweep("s"))
    own = sweep.model_copy(update={"recipe": sweep.recipe | {"evaluation": {"tasks": ["sts=my/pairs@test", "pairs=my/judged"]}}})
    assert sweep_scores(own) == ("sts-my-pairs-test", "pairs-my-judged") and sweep_metric(own) == "sts-my-pairs-test"
    assert averages({"sts-my-pairs-test": 80.0, "sts-my-others": 70.0}) == {"avg": 75.0}


@pytest.mark.parametrize(
    ("tasks", "metric"), [(["sts"], "avg_sts"), (["stsb"], "stsb"), (["stsb", "sickr"], "avg"), (["stackfaq", "sts"], "avg_sts")]
)
def test_the_primary_metric_is_one_that_the_trials_have(tasks: list[str], metric: str) -> None:
    assert primary_metric(tasks) == metric


def test_metrics_are_finite_numbers_under_names_that_a_server_takes() -> None:
    found = final_metrics(
        record("scores", **{"stackfaq": 50.0, "stackfaq.acc@1": 41.0, "stackfaq.map": 0.0, "worst": None, "bad": math.nan, "text": "x"})
    )
    assert found == {"stackfaq": 50.0, "stackfaq.acc_at_1": 41.0, "stackfaq.map": 0.0, "scores_s": 2.0}
    assert metric_name("a@b,c") == "a_at_b_c"
    assert curve_metrics({"step": 5, "loss": 1.5, "lr": 0.0, "grad_norm": math.inf, "at": 12.0, "task": "stsb-dev"}) == {
        "loss": 1.5,
        "learning_rate": 0.0,
    }


def test_a_trainings_mean_throughput_does_not_disturb_its_curve() -> None:
    found = final_metrics(record("train", sentences_per_s=400.0, stopped_early=True))
    assert found == {"mean_sentences_per_s": 400.0, "stopped_early": 1.0, "train_s": 2.0}


def test_the_sweeps_note_orders_trials_and_says_what_sharing_saved() -> None:
    sweep = sweep_record(small_sweep("s"))
    records = {
        trial.key: record("scores", key=trial.key, **dict.fromkeys(STS, 70.0 + number)) for number, trial in enumerate(sweep.trials[:3])
    }
    note = sweep_note(
        sweep,
        records,
        trials={trial.key: Link(name=trial.name, kind="scores", url="#/x") for trial in sweep.trials},
        views=[Link(name="Trials", kind="view", url="#/c")],
        store="/store",
    )
    assert note.startswith("**3 of 5 trials are scored.**\n\n[Trials](#/c)\n\n")
    assert note.index("Entropy encoder") < note.index("Eq. 1")
    assert f"{len(sweep.places)} stages stand for the {sum(sweep.mentions.values())} that the trials need" in note
    lines = summary_csv(summary_rows(sweep, records)).splitlines()
    assert lines[0].startswith("trial,method,seed,fold,dev_score,avg_sts,sts12")
    assert len(lines) == 4


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


def test_notes_say_why_something_ended() -> None:
    sweep = sweep_record(small_sweep("s"))
    link = Link(name="s", kind="sweep", url=None)
    trial = trial_note(sweep.trials[0], sweep=link, train=None, scores=None, address=None, shared=(), reason="out of memory")
    assert "Ended without scores: out of memory" in trial
    stage = stage_note("nli", "corpus", sweep=link, record=None, address=None, trials=[link], made_from=(), reason="no such file")
    assert "a corpus that 1 trial of s uses" in stage
    assert "no such file" in stage


def test_a_run_handle_travels_by_pickle_and_costs_nothing_before_its_first_message() -> None:
    run = MlflowRun(uri="http://127.0.0.1:9", experiment_id="1", run_id="a")
    again = pickle.loads(pickle.dumps(run))
    assert again.url == run.url == "http://127.0.0.1:9/#/experiments/1/runs/a?workflowType=machine_learning"
    assert again.close() == []


@pytest.mark.parametrize(
    ("outcome", "is_complete", "status"),
    [
        (None, True, "FINISHED"), (None, False, "FAILED"), ("failed", True, "FAILED"), ("failed", False, "FAILED"),
        ("stopped", True, "FINISHED"), ("stopped", False, "KILLED"),
    ],
)  # fmt: skip
def test_how_a_sweep_ended_is_reported_by_what_it_has(outcome: RunOutcome | None, is_complete: bool, status: str) -> None:
    assert _ended(outcome, is_complete=is_complete) == status


def test_a_run_took_the_seconds_of_its_record() -> None:
    made = record("train", seconds=2.5)  # at 2026-01-02T03:04:05Z
    assert (began_ms(made), closed_ms(made)) == (1767323042500, 1767323045000)


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


def test_a_measure_that_is_the_main_score_already_is_no_second_metric() -> None:
    found = final_metrics(record("scores", **{"stsb": 80.0, "stsb.spearman": 80.0, "stsb.pearson": 79.0}))
    assert found == {"stsb": 80.0, "stsb.pearson": 79.0, "scores_s": 2.0}


def test_the_parts_of_a_trainings_seconds_carry_their_unit() -> None:
    found = final_metrics(record("train", **{"seconds.forward": 1.5}))
    assert found == {"time.forward_s": 1.5, "train_s": 2.0}


def test_a_shared_stage_is_not_named_like_a_trial() -> None:
    layout = layout_of(small_sweep("s"))
    kinds = {layout.name(key).partition(":")[0] for key in layout.shared}
    assert kinds == {"corpus", "training", "bank"}
    assert not any(":" in layout.name(key) for key in layout.trials)


def test_notes_of_a_large_sweep_are_whole() -> None:
    """MLflow cuts a note after 8000 letters: what comes after the table would be lost."""
    layout = layout_of(grid_sweep("large", num_trials=300))
    records = {key: record("scores", key=key, **dict.fromkeys(STS, 80.0)) for key in layout.trials}
    url = f"#/experiments/1/runs/{'0' * 32}?workflowType=machine_learning"
    links = {trial.key: Link(name=trial.name, kind="scores", url=url) for trial in layout.trials.values()}
    note = sweep_note(layout.sweep, records, trials=links, views=[], store="/store")
    assert len(note) < TAG_LETTERS and note.endswith("Artifacts: `/store`")
    assert "The other 270 stand in `summary.csv`" in note
    link = Link(name="large", kind="sweep", url=url)
    stage = stage_note("nli", "corpus", sweep=link, record=None, address="a", trials=list(links.values()), made_from=(), reason=None)
    assert len(stage) < TAG_LETTERS and stage.endswith("- and 270 more")


def test_scores_stand_on_a_model_with_as_many_digits_as_on_its_run() -> None:
    """They are the same metrics: the last to be written is what a page shows."""

    class Client:
        def log_batch(self, run_id: str, metrics: list[Any]) -> None:
            self.reported = {metric.key: metric.value for metric in metrics}

    client = Client()
    scores: dict[str, Json] = {"stsb": 79.92685123, "stsb.pearson": 80.1}
    add_model_metrics(client, "run", "model", main_scores(record("scores", **scores)))  # type: ignore[arg-type]
    assert client.reported == {name: final_metrics(record("scores", **scores))[name] for name in ("stsb",)} == {"stsb": 79.93}
