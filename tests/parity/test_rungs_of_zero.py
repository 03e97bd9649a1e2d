"""Rungs under ZeRO, where each rank has a share of the state: a training through them equals an uninterrupted one bit for bit."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.plan.stage import Json
from sentdist.plan.stages import Rung, Train, to_share
from sentdist.stages.rungs import events_until, file_bank, from_rung, publish_training
from sentdist.stages.train import TrainSession
from sentdist.stages.train_setup import ranks_here
from tests.parity.processes import run_in_processes
from tests.parity.test_rungs import SHARES, prepared, values_of
from tests.support.tiny_data import tiny_plan, write_data

pytestmark = pytest.mark.parity


def _on_rank(
    rank: int, world_size: int, values: dict[str, Json], data: Path, store: Path, out: Path, shares: tuple[float, ...]
) -> list[dict[str, Any]]:
    """What a training comes to, and what its rungs noted, through those at `shares`."""
    plan, context = tiny_plan(values, data=data, store=store)
    context = replace(context, shares=shares)
    train = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == "rcl")
    engine = partial(DeepSpeedEngine, zero_stage=context.runtime.zero_stage)
    make = partial(TrainSession, train, context, make_engine=engine, bank=file_bank(train, context))
    noted = []
    for share in (*shares, 1.0):
        stage, folder = to_share(train, share), out / f"{len(shares)}-{share}-rank-{rank}"
        resumed = from_rung(make(), stage, context, make=make, ranks=ranks_here())
        noted.append({"begins": resumed.step, "note": resumed.note})
        list(events_until(stage, resumed.session))
        noted[-1] |= {"ends": resumed.session.progress.step, "history": resumed.session.progress.history}
        if isinstance(stage, Rung):
            publish_training(resumed, stage, context, ranks_here(), started=time.perf_counter())
            ranks_here().exchange(None)  # it is in the store
        else:
            folder.mkdir()
            noted[-1] |= {"last": resumed.session.engine.weights(), "results": resumed.session.finish(folder)}
    return noted


@pytest.mark.parametrize(
    ("zero_stage", "world_size"), [(2, 2), *(pytest.param(*more, marks=pytest.mark.nightly) for more in ((1, 2), (2, 1), (3, 2)))]
)
def test_a_training_through_rungs_is_the_training(tmp_path: Path, tiny_encoder_dir: Path, zero_stage: int, world_size: int) -> None:
    values = values_of(tiny_encoder_dir) | {"runtime": {"engine": "deepspeed", "zero_stage": zero_stage, "workers": world_size}}
    data = write_data(tmp_path / "data")
    prepared(values, data, tmp_path / "store")
    run = partial(run_in_processes, _on_rank, world_size, values, data, tmp_path / "store", tmp_path)
    (whole,), through = run(())[0], run(SHARES)[0]
    assert [(one["begins"], one["ends"], one["note"]) for one in through] == [(0, 4, None), (4, 6, None), (6, 12, None)]
    assert whole["history"] == through[-1]["history"] and len(whole["history"]) == 6
    assert whole["last"].keys() == through[-1]["last"].keys()
    assert all(torch.equal(whole["last"][name], through[-1]["last"][name]) for name in whole["last"])
    one, two = (load_file(tmp_path / f"{number}-1.0-rank-0" / "model.safetensors") for number in (0, len(SHARES)))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert whole["results"]["best_step"] == through[-1]["results"]["best_step"]
