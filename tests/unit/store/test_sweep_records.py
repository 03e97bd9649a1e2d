"""The records of a sweep lie on an object store by the thousand, and each takes as long as a request takes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sentdist.store.record import Artifact
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import sweep_record
from tests.support.planning import plan_of, small_recipe


def test_a_sweep_keeps_what_its_recipe_says_defaults_too() -> None:
    recipe = sweep_record(plan_of(small_recipe(seeds=[0]))).recipe
    assert recipe["seeds"] == [0] and "confirm_seeds" not in recipe


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
