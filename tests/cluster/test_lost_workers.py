"""A training whose worker is killed, that is stopped, and whose newest checkpoint is damaged: its parameters are those of one process."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import SweepStopped
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.stages.local import build_here
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.trained import assert_same_parameters
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


def test_a_training_that_loses_a_worker_or_is_stopped_goes_on_from_its_checkpoint(
    cluster: Any, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    import ray

    from sentdist.run.client import BoardClient, stop_sweeps
    from sentdist.run.orders import build_stage
    from sentdist.run.submissions import Submission

    data = write_data(tmp_path / "data")
    long: Json = {
        "objective": {"name": "info_nce", "temperature": 0.05}, "regularizers": {"attention_dropout": 0.0, "hidden_dropout": 0.0}, "select": False,
        "training": {"epochs": 20, "learning_rate": 1e-5},
    }  # fmt: skip
    values = tiny_values(tiny_encoder_dir, methods={"long": long}, baseline=None)
    values["runtime"] = {"workers": 2, "zero_stage": 2, "checkpoint_every_s": 0.2, "max_failures": 1}
    plan, on_ray = tiny_plan(values, data=data, store=tmp_path / "on-ray")
    _, here = tiny_plan(values, data=data, store=tmp_path / "here")
    stage = plan.trials[0].scores.encoder
    assert isinstance(stage, Train)
    first = BoardClient(Submission(context=on_ray, sweep="long"), build_stage)
    steps_after: list[int] = []
    killed_at = None
    with ThreadPoolExecutor(1) as pool, pytest.raises(SweepStopped):
        for event in first.follow(stage):
            if event.what != "step" or event.step is None:
                continue
            if killed_at is None and event.step >= 36:
                cluster.kill_train_worker()
                killed_at = event.step
            elif killed_at is not None:
                steps_after.append(event.step)
                if len(steps_after) == 2:
                    stopping = pool.submit(stop_sweeps, "long")
    assert killed_at is not None and min(steps_after) > 12, "it began again instead of going on"  # 12: the first step that is spoken of
    assert stopping.result() == {"long": 1}
    wait_for(lambda: ray.available_resources().get("CPU") == 2, what="the workers' CPUs")
    assert not on_ray.store.has(stage)
    first.leave()
    checkpoints = sorted((tmp_path / "on-ray" / "running" / stage.key).iterdir())
    if not all((checkpoints[-1] / f"seal-{rank:05d}.json").exists() for rank in range(2)):
        shutil.rmtree(checkpoints.pop())  # the workers were stopped while they wrote it
    older, newest = checkpoints[-2:]
    damaged = max((path for path in newest.rglob("*rank_1*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    second = BoardClient(Submission(context=on_ray, sweep="long"), build_stage)
    events = list(second.follow(stage))
    second.leave()
    reported = [event for event in events if event.what == "resumed"]
    assert f"step {int(newest.name)} is of no use" in reported[0].line and damaged.name in reported[0].line
    assert reported[0].step == int(older.name)
    steps = [event.step for event in events if event.what == "step" and event.step is not None]
    assert min(steps) == (int(older.name) // 12 + 1) * 12, "the first step that is spoken of after that checkpoint"
    for needed in (stage.corpus, stage):
        build_here(needed, here)
    assert_same_parameters(stage, here, on_ray)
