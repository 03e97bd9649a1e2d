"""The records of a sweep lie on an object store by the thousand, and each takes as long as a request takes."""

from __future__ import annotations

from pathlib import Path

import pytest

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
