"""The records of a sweep lie on an object store by the thousand, and each takes as long as a request takes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sentdist.store.record import Artifact
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import left_out_line, save_sweep, sweep_record
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_sweeps import fill_store


def test_a_sweep_keeps_what_its_recipe_says_defaults_too() -> None:
    recipe = sweep_record(plan_of(small_recipe(seeds=[0]))).recipe
    assert recipe["seeds"] == [0] and "confirm_seeds" not in recipe


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_sweep_that_takes_the_place_of_other_trials_says_so(tmp_path: Path, is_finished: bool) -> None:
    """Another recipe of the same name, perhaps from another folder, or the same one with less in it."""
    wide, narrow = (plan_of(small_recipe(seeds=seeds)) for seeds in ([0, 1], [0]))
    store = ArtifactStore(tmp_path)
    assert left_out_line(store, sweep_record(wide)) is None
    save_sweep(store, sweep_record(wide))
    if is_finished:
        fill_store(store, wide, noise=lambda trial: 1.0, num_items={"stsb": 40})
    assert left_out_line(store, sweep_record(wide)) is None
    cells = ", ".join(dict.fromkeys(trial.cell for trial in wide.trials if trial.seed == 1))
    said = f"{wide.recipe.name} had other trials before ({cells}): its report shows today's alone."
    assert (left_out_line(store, sweep_record(narrow)) or "").startswith(said if is_finished else "")
    assert bool(left_out_line(store, sweep_record(narrow))) == is_finished
    searched = sweep_record(narrow).model_copy(update={"recipe": {"search": {}}})
    assert left_out_line(store, searched) is None, "finalists change"
    save_sweep(store, sweep_record(narrow))
    assert left_out_line(store, sweep_record(wide)) is None


def test_records_are_read_several_at_a_time_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, store = plan_of(small_recipe()), ArtifactStore(tmp_path)
    for stage in plan.stages[1:]:
        with store.staged() as folder:
            store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})
    others = threading.Barrier(3, timeout=30)
    at = ArtifactStore.at

    def slow(self: ArtifactStore, place: str) -> Artifact | None:
        if place in [stage.place for stage in plan.stages[:3]]:
            others.wait()
        return at(self, place)

    monkeypatch.setattr(ArtifactStore, "at", slow)
    assert list(sweep_record(plan).records(store)) == [stage.key for stage in plan.stages[1:]]
    monkeypatch.undo()
    assert [one.record.place for one in store.artifacts()] == sorted(stage.place for stage in plan.stages[1:])
