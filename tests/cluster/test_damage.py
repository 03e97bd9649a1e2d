"""A damaged input met on a cluster: it is moved aside and built again, and the sweep ends as an undisturbed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.store.store import ASIDE
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_thread")]

LIGHT: Json = {"engine": "torch", "bank_in_object_store": False, "max_failures": 0}


@pytest.mark.in_turns(2)
def test_a_sweep_builds_damaged_inputs_again(cluster: Any, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from sentdist.execution.sweep import run_sweep

    data = write_data(tmp_path / "data", num_rows=32)
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir, runtime=LIGHT), data=data, store=tmp_path / "store")
    run_local(plan, context)
    last = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.banks)
    scores = [trial.scores for trial in plan.trials if trial.scores.encoder == last]
    before = {stage.key: context.store.at(stage.place) for stage in (*last.banks, *scores)}
    shard = next((tmp_path / "store" / last.banks[0].place / "shards").iterdir())
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    for stage in (last, *scores):
        found = context.store.get(stage)
        assert found is not None
        context.store.drop(found)
    lines: list[str] = []
    summary = run_sweep(plan, context, print_line=lines.append)
    assert not summary.failures, summary.lines
    assert any("waits for an input that is built again" in line and "moved to" in line for line in lines), lines
    assert len(list((tmp_path / "store" / ASIDE).iterdir())) == 1
    for stage in (*last.banks, *scores):
        old, new = before[stage.key], context.store.at(stage.place)
        assert old is not None and new is not None
        assert new.record.digests == old.record.digests
