"""Sweeps in a store: what dev chooses among their cells, what is left of a plan, what their records keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import Bank, Train
from sentdist.recipe.unroll import Plan, Trial
from sentdist.store.garbage import forecast
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import cells_by_dev, dev_chooses, sweep_record
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_sweeps import fill_store

METHODS: dict[str, Json] = {
    "base": {"title": "Untouched"},
    "one": {"objective": {"name": "info_nce", "temperature": 0.05}},
    "two": {"objective": {"name": "info_nce", "temperature": 0.1}},
    "last": {"objective": {"name": "info_nce", "temperature": 0.2}, "select": False},
}
DEV = {("one", 0): 90.0, ("one", 1): 70.0, ("two", 0): 81.0, ("two", 1): 82.0}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(small_recipe(methods=METHODS, seeds=[0, 1], evaluation={"tasks": ["stsb"]}))


def _filled(plan: Plan, root: Path, *, without: tuple[str, int] | None = None) -> ArtifactStore:
    store = ArtifactStore(root)

    def noise(trial: Trial) -> float:
        return 0.1 if trial.method == "one" else 2.0  # on the test set `one` is by far the best

    fill_store(
        store, plan, noise=noise, num_items={"stsb": 50}, dev=lambda trial: DEV.get((trial.method, trial.seed or 0), 99.0),
        skip=lambda trial: (trial.method, trial.seed) == without,
    )  # fmt: skip
    return store


def test_the_highest_mean_over_seeds_is_chosen_and_its_best_encoder(plan: Plan, tmp_path: Path) -> None:
    sweep = sweep_record(plan)
    first, second = cells_by_dev(sweep, sweep.records(_filled(plan, tmp_path)))
    assert (first.label, first.task, first.dev, first.best.seed) == ("two", "stsb-dev", 81.5, 1)
    assert (second.label, second.dev, second.best.seed) == ("one", 80.0, 0)


def test_a_cell_that_lacks_a_seed_is_not_compared(plan: Plan, tmp_path: Path) -> None:
    sweep = sweep_record(plan)
    found = cells_by_dev(sweep, sweep.records(_filled(plan, tmp_path, without=("two", 0))))
    assert [cell.label for cell in found] == ["one"]


def test_without_a_selection_dev_chooses_nothing(tmp_path: Path) -> None:
    plan = plan_of(small_recipe(methods=METHODS, seeds=[0], selection=None, evaluation={"tasks": ["stsb"]}))
    sweep = sweep_record(plan)
    assert not dev_chooses(sweep)
    assert cells_by_dev(sweep, sweep.records(_filled(plan, tmp_path))) == []


def _finish(store: ArtifactStore, stage: Stage, **results: Json) -> None:
    with store.staged() as folder:
        (folder / "data.txt").write_text("data")
        store.commit(stage, folder, seconds=1.0, runtime={}, environment={}, results=results)


@pytest.fixture
def plan_of_forecast() -> Plan:
    return plan_of(small_recipe(sweep={"methods.rcl.phis": [[0.01], [0.01, 0.02]]}))


def test_earlier_runs_say_how_long_the_rest_takes(plan_of_forecast: Plan, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    trainings = [stage for stage in plan_of_forecast.stages if isinstance(stage, Train)]
    banks = [stage for stage in plan_of_forecast.stages if isinstance(stage, Bank)]
    for stage, speed in zip(trainings[:3], (100, 200.0, 900), strict=True):
        _finish(store, stage, sentences_per_s=speed)
    _finish(store, banks[0], sentences_per_s=1000.0)
    ahead = forecast(plan_of_forecast, store)
    seconds = {kind.kind: kind.seconds for kind in ahead.kinds}
    assert seconds["train"] == pytest.approx(2 * 9984 * 3 / 200)  # the median speed
    assert ahead.saved == 4, "whatever is finished"
    assert seconds["bank"] == pytest.approx(30)
    assert ahead.seconds == pytest.approx(2 * 9984 * 3 / 200 + 30 + 4 * 2 * 1379 / 1000)
    assert ahead.work_left.startswith(f"About {ahead.seconds / 60:.0f} min of work, one stage after another, ")


def test_a_finished_plan_leaves_nothing(plan_of_forecast: Plan, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for stage in plan_of_forecast.stages:
        _finish(store, stage)
    ahead = forecast(plan_of_forecast, store)
    assert ahead.seconds == 0.0
    assert ahead.work_left == "Nothing to build."
    assert ahead.finished == {stage.key for stage in plan_of_forecast.stages}
