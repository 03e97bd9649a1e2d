"""What a sweep will write against what is free."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sentdist.errors import StoreError
from sentdist.execution.plan_facts import (
    CHECKPOINT_BYTES,
    CHECKPOINTS,
    SMALL_STAGE_BYTES,
    DiskEstimate,
    disk_estimate,
    search_disk_estimate,
)
from sentdist.plan.stages import Train
from sentdist.stages.planning.worker_memory import encoder_size
from sentdist.store.store import ArtifactStore
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.tiny_search import pretended, tiny_search


def test_the_forecast_holds_what_a_run_writes(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    estimate = disk_estimate(plan, context, frozenset(stage.key for stage in plan.stages))
    run_local(plan, context)
    trained = sum(sum(artifact.record.files.values()) for artifact in context.store.artifacts("train"))
    written = sum(sum(artifact.record.files.values()) for artifact in context.store.artifacts())
    assert 0.3 * trained < estimate.encoders < 1.5 * trained  # a tiny encoder's tokenizer and card weigh as much as it does
    assert estimate.checkpoints == CHECKPOINT_BYTES * CHECKPOINTS * (estimate.encoders / 4 / _trainings(plan.stages))
    assert written < estimate.encoders + estimate.others
    nothing = disk_estimate(plan, context, frozenset())
    assert nothing == DiskEstimate(encoders=0, checkpoints=0, others=0)
    assert "checkpoints" not in nothing.line(None)


def test_what_is_at_work_at_once_keeps_checkpoints_at_once(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    keys = frozenset(stage.key for stage in plan.stages)
    one, two = (disk_estimate(plan, context, keys, at_once=number).least for number in (1, 2))
    assert two - one == pytest.approx(one * CHECKPOINT_BYTES * CHECKPOINTS / (4 * _trainings(plan.stages) + CHECKPOINT_BYTES * CHECKPOINTS))


def _trainings(stages: tuple[object, ...]) -> int:
    return sum(isinstance(stage, Train) for stage in stages)


def test_a_disk_that_may_be_too_small_is_reported_and_one_that_is_too_small_refused(tmp_path: Path) -> None:
    estimate = DiskEstimate(encoders=1_500_000_000, checkpoints=500_000_000, others=3_000_000_000)
    assert (estimate.least, estimate.likely) == (2_000_000_000, 5_000_000_000)
    assert estimate.warning(6_000_000_000) is None
    assert estimate.warning(None) is None
    assert (estimate.warning(4_000_000_000) or "").startswith(
        "It adds about 4.5 GB to the store and, while it trains, up to 500 MB of checkpoints; 4 GB free: too little. It may stop on the way"
    )
    with pytest.raises(StoreError, match=r"B free; expected about 1 EB"):
        ArtifactStore(tmp_path).check_writable(needed_bytes=10**18)


def test_a_store_that_is_not_there_yet_has_the_free_bytes_of_its_disk(tmp_path: Path) -> None:
    assert (ArtifactStore(tmp_path / "not" / "yet").free_bytes() or 0) > 0


def test_a_search_keeps_the_encoders_of_the_trials_that_come_to_their_end(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_data(tmp_path / "data")
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path / "store", halving=None)
    none, some = (search_disk_estimate(planned, context, dict.fromkeys(planned.methods, number)) for number in (0, 10))
    size = encoder_size(json.loads((tiny_encoder_dir / "config.json").read_text())).num_parameters
    assert none.least == some.least
    assert some.likely - none.likely == 10 * len(planned.methods) * (SMALL_STAGE_BYTES + 4 * size)
    halved, _ = tiny_search(tiny_encoder_dir, data, tmp_path / "store", halving={"rungs": [0.33, 0.66, 1.0], "keep": 0.5})
    fewer = search_disk_estimate(halved, context, dict.fromkeys(planned.methods, 10))
    assert fewer.likely - none.likely == 10 * len(planned.methods) * (SMALL_STAGE_BYTES + size)


def test_a_search_whose_finalists_find_no_room_does_not_begin(
    tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, context = tiny_search(tiny_encoder_dir, write_data(tmp_path / "data"), tmp_path / "store")
    reported: list[str] = []
    free = search_disk_estimate(planned, context, {}).least + 1
    monkeypatch.setattr(ArtifactStore, "free_bytes", lambda store: free)
    pretended(planned, context, print_line=reported.append).begin()
    assert any("too little. It may stop on the way" in line for line in reported)
    free = 10_000
    with pytest.raises(StoreError, match=r"found 10 kB free; expected about 1\.\d+ MB"):
        pretended(planned, context, print_line=reported.append).begin()
