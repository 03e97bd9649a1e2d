"""What dev chooses among the cells of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.plan.stage import Json
from sentdist.plan.unroll import Plan, Trial
from sentdist.store.chosen import cells_by_dev, challengers, dev_chooses
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_record
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


def test_a_trial_that_is_trained_and_not_scored_is_not_compared(plan: Plan, tmp_path: Path) -> None:
    sweep = sweep_record(plan)
    records = sweep.records(_filled(plan, tmp_path))
    unscored = next(trial for trial in sweep.trials if (trial.cell, trial.seed) == ("two", 1))
    found = cells_by_dev(sweep, {key: record for key, record in records.items() if key != unscored.key})
    assert unscored.train in records and [cell.label for cell in found] == ["one"]


def test_without_a_selection_dev_chooses_nothing(tmp_path: Path) -> None:
    plan = plan_of(small_recipe(methods=METHODS, seeds=[0], selection=None, evaluation={"tasks": ["stsb"]}))
    sweep = sweep_record(plan)
    assert not dev_chooses(sweep)
    assert cells_by_dev(sweep, sweep.records(_filled(plan, tmp_path))) == []


def test_the_baseline_challenges_nobody(tmp_path: Path) -> None:
    plan = plan_of(small_recipe(methods=METHODS, seeds=[0, 1], baseline="two", evaluation={"tasks": ["stsb"]}))
    sweep = sweep_record(plan)
    assert [cell.label for cell in challengers(sweep, sweep.records(_filled(plan, tmp_path)))] == ["one"]
