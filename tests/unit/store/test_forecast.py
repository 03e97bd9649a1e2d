"""What a plan says is in a store, what is left, and how long that takes; and the short table of what came out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.plan.stage import Json, Stage
from sentdist.plan.stages import Bank, Scores, Train
from sentdist.plan.unroll import Plan
from sentdist.report.tables import brief_table
from sentdist.store.garbage import Forecast, forecast
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_record
from tests.support.planning import plan_of, small_recipe


def _finish(store: ArtifactStore, stage: Stage, **results: Json) -> None:
    with store.staged() as folder:
        (folder / "data.txt").write_text("data")
        store.commit(stage, folder, seconds=1.0, runtime={}, environment={}, results=results)


def _kinds(ahead: Forecast) -> dict[str, tuple[int, int, int, int]]:
    return {kind.kind: (kind.mentions, kind.distinct, kind.finished, kind.missing) for kind in ahead.kinds}


@pytest.fixture
def plan() -> Plan:
    return plan_of(small_recipe(sweep={"methods.rcl.phis": [[0.01], [0.01, 0.02]]}))


def test_an_empty_store_has_all_before_it_and_no_speed(plan: Plan, tmp_path: Path) -> None:
    ahead = forecast(plan, ArtifactStore(tmp_path))
    assert _kinds(ahead) == {"corpus": (3, 1, 0, 1), "train": (6, 5, 0, 5), "bank": (3, 2, 0, 2), "scores": (4, 4, 0, 4)}
    assert ahead.saved == 4
    assert ahead.seconds is None
    assert "not known" in ahead.work_left


def test_work_is_counted_in_sentences(plan: Plan, tmp_path: Path) -> None:
    sentences = {kind.kind: kind.sentences for kind in forecast(plan, ArtifactStore(tmp_path)).kinds}
    assert sentences["train"] == 5 * (10_000 // 64 * 64) * 3  # rows of full batches, three columns
    assert sentences["bank"] == 2 * 10_000 * 3
    assert sentences["scores"] == 4 * 2 * 1379  # the pairs of STS-B's test split
    assert not any(kind.is_guessed for kind in forecast(plan, ArtifactStore(tmp_path)).kinds)


def test_each_epoch_is_counted(tmp_path: Path) -> None:
    plan = plan_of(small_recipe(training={"epochs": 3, "batch_size": 64}))
    work = {kind.kind: kind for kind in forecast(plan, ArtifactStore(tmp_path)).kinds}
    assert work["train"].sentences == work["train"].distinct * 3 * (10_000 // 64 * 64) * 3


def test_a_task_whose_size_is_not_published_counts_as_a_thousand_pairs(tmp_path: Path) -> None:
    plan = plan_of(small_recipe(methods={"base": {}}, evaluation={"tasks": ["twitter-pit"]}))
    assert [(kind.sentences, kind.is_guessed) for kind in forecast(plan, ArtifactStore(tmp_path)).kinds] == [(2 * 1000, True)]
    beside = plan_of(small_recipe(methods={"base": {}}, evaluation={"tasks": ["stsb", "twitter-pit"]}))
    assert [(one.sentences, one.is_guessed) for one in forecast(beside, ArtifactStore(tmp_path)).kinds] == [(2 * (1379 + 1000), True)]


def test_earlier_runs_say_how_long_the_rest_takes(plan: Plan, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    trainings = [stage for stage in plan.stages if isinstance(stage, Train)]
    banks = [stage for stage in plan.stages if isinstance(stage, Bank)]
    for stage, speed in zip(trainings[:3], (100, 200.0, 900), strict=True):
        _finish(store, stage, sentences_per_s=speed)
    _finish(store, banks[0], sentences_per_s=1000.0)
    ahead = forecast(plan, store)
    seconds = {kind.kind: kind.seconds for kind in ahead.kinds}
    assert seconds["train"] == pytest.approx(2 * 9984 * 3 / 200)  # the median speed
    assert ahead.saved == 4, "whatever is finished"
    assert seconds["bank"] == pytest.approx(30)
    assert ahead.seconds == pytest.approx(2 * 9984 * 3 / 200 + 30 + 4 * 2 * 1379 / 1000)
    assert ahead.work_left.startswith(f"About {ahead.seconds / 60:.0f} min of work, one stage after another, ")


def test_a_store_without_banks_judges_encoding_by_its_trainings(tmp_path: Path) -> None:
    store, plan = ArtifactStore(tmp_path), plan_of(small_recipe(methods={"tuned": {"objective": {"name": "info_nce"}}}, seeds=[0, 1]))
    training = next(stage for stage in plan.stages if isinstance(stage, Train))
    assert forecast(plan, store).seconds is None
    _finish(store, training, sentences_per_s=100.0)
    assert forecast(plan, store).seconds == pytest.approx(9984 * 3 / 100 + 2 * 2 * 1379 / 300), "a sentence is encoded three times as fast"


def test_a_finished_plan_leaves_nothing(plan: Plan, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for stage in plan.stages:
        _finish(store, stage)
    ahead = forecast(plan, store)
    assert ahead.seconds == 0.0
    assert ahead.work_left == "Nothing to build."
    assert ahead.finished == {stage.key for stage in plan.stages}


def test_the_short_table_has_means_over_seeds_and_gaps(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    plan = plan_of(small_recipe(seeds=[0, 1], evaluation={"tasks": ["stsb", "sickr"]}))
    scores = {"base": [(70.0, 60.0)], "fine_tuned": [(80.0, 70.0), (82.0, 72.0)]}
    for method, values in scores.items():
        for trial, (stsb, sickr) in zip([trial for trial in plan.trials if trial.method == method], values, strict=True):
            assert isinstance(trial.scores, Scores)
            _finish(store, trial.scores, stsb=stsb, sickr=sickr)
    sweep = sweep_record(plan)
    table = brief_table(sweep, sweep.records(store))
    assert table.columns == ("system", "n", "stsb", "sickr", "average of sts")
    assert table.rows == (
        ("base", "1", "70.00", "60.00", "65.00"),
        ("fine_tuned", "2", "81.00 ± 1.41", "71.00 ± 1.41", "76.00 ± 1.41"),
        ("rcl", "0", "–", "–", "–"),
    )
