"""Ray Train with DeepSpeed on two workers: the parameters of one process, also when a worker is lost on the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sentdist.errors import SweepStopped
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.local import build_here, run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

# fp32 sums in another order (two half batches and a gather instead of one batch), carried through AdamW,
# whose first steps are all of size lr whatever the gradient: 1e-4 is a tenth of one step's size,
# and 300 times what one step of rounding noise makes.
CLOSE = {"rtol": 1e-3, "atol": 1e-4}

STILL: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}


def _weights(stage: Train, context: Context) -> dict[str, torch.Tensor]:
    artifact = context.store.get(stage)
    assert artifact is not None
    return load_file(context.store.folder(artifact) / "model.safetensors")


def _assert_same_parameters(stage: Train, one: Context, other: Context) -> None:
    expected, found = _weights(stage, one), _weights(stage, other)
    assert expected.keys() == found.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")


def test_rcl_on_two_workers_gives_the_parameters_of_one_process(cluster: Any, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Everything at once: ZeRO-2 trainings, a bank embedded by a pool of workers and looked up in the object store."""
    from sentdist.execution.sweep import run_sweep

    data = write_data(tmp_path / "data", num_rows=32)
    methods = tiny_values(tiny_encoder_dir)["methods"]
    assert isinstance(methods, dict) and isinstance(methods["rcl"], dict)
    values = tiny_values(
        tiny_encoder_dir,
        methods={"entropy": methods["entropy"], "rcl": methods["rcl"] | {"phis": [0.01]}},
        baseline=None,
        runtime={"workers": 2},
    )
    values["runtime"] = {"workers": 2, "zero_stage": 2}
    plan, on_ray = tiny_plan(values, data=data, store=tmp_path / "on-ray")
    _, here = tiny_plan(values, data=data, store=tmp_path / "here")
    summary = run_sweep(plan, on_ray, print_line=lambda line: None)
    assert not summary.failures, summary.lines
    run_local(plan, here)
    for stage in plan.stages:
        if isinstance(stage, Train):
            _assert_same_parameters(stage, here, on_ray)
    scores = [context.store.get(plan.trials[0].scores) for context in (here, on_ray)]
    assert scores[0] is not None and scores[1] is not None
    assert scores[1].record.results["stsb"] == pytest.approx(scores[0].record.results["stsb"], abs=0.5)  # ranks of 40 pairs
    assert not list((tmp_path / "on-ray" / "running").glob("*"))
    wait_for(lambda: not cluster.actors("TrainController"), what="the end of the last training's controller")


def test_a_training_that_loses_a_worker_or_is_stopped_goes_on_from_its_checkpoint(
    cluster: Any, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    import ray

    from sentdist.execution.board.client import BoardClient
    from sentdist.execution.board.submission import Submission
    from sentdist.execution.build_stage import build_stage
    from sentdist.execution.stop_sweeps import Stopped, stop_sweeps

    data = write_data(tmp_path / "data")
    long: Json = {
        "objective": {"name": "info_nce", "temperature": 0.05}, "regularizers": STILL, "select": False,
        "training": {"epochs": 20, "learning_rate": 1e-5},
    }  # fmt: skip
    values = tiny_values(tiny_encoder_dir, methods={"long": long}, baseline=None)
    values["runtime"] = {"workers": 2, "zero_stage": 2, "checkpoint_every_s": 0.2, "max_failures": 1}
    plan, on_ray = tiny_plan(values, data=data, store=tmp_path / "on-ray")
    _, here = tiny_plan(values, data=data, store=tmp_path / "here")
    stage = plan.trials[0].scores.encoder
    assert isinstance(stage, Train)
    first = BoardClient(Submission(context=on_ray, sweep="long"), build_stage)
    heard_after: list[int] = []
    killed_at = None
    with ThreadPoolExecutor(1) as pool, pytest.raises(SweepStopped):
        for event in first.follow(stage):
            if event.what != "step" or event.step is None:
                continue
            if killed_at is None and event.step >= 36:
                cluster.kill_train_worker()
                killed_at = event.step
            elif killed_at is not None:
                heard_after.append(event.step)
                if len(heard_after) == 2:
                    stopping = pool.submit(stop_sweeps, "long")
    assert killed_at is not None and min(heard_after) > 12, "it began again instead of going on"  # 12: the first step that is spoken of
    assert stopping.result() == [Stopped(sweep="long", num_ended=1)]
    wait_for(lambda: ray.available_resources().get("CPU") == 2, what="the workers' CPUs")
    assert not on_ray.store.has(stage)
    first.leave()
    older, newest = sorted((tmp_path / "on-ray" / "running" / stage.key).iterdir())
    damaged = max((path for path in newest.rglob("*rank_1*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    second = BoardClient(Submission(context=on_ray, sweep="long"), build_stage)
    events = list(second.follow(stage))
    second.leave()
    told = [event for event in events if event.what == "resumed"]
    assert f"step {int(newest.name)} is of no use" in told[0].line and damaged.name in told[0].line
    assert told[1].step == int(older.name)
    steps = [event.step for event in events if event.what == "step" and event.step is not None]
    assert min(steps) > 36, "it began again instead of going on"
    for needed in (stage.corpus, stage):
        build_here(needed, here)
    _assert_same_parameters(stage, here, on_ray)
