"""A training that goes through rungs equals an uninterrupted one bit for bit, and has its key; so it does under ZeRO."""

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
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.rung_records import rung_score
from sentdist.stages.rungs import events_until, file_bank, from_rung, publish_training
from sentdist.stages.train import TrainSession
from sentdist.stages.train_setup import ranks_here
from tests.parity.processes import run_in_processes
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = pytest.mark.parity

SHARES = (0.2, 0.5)


def values_of(encoder: Path) -> dict[str, Json]:
    """Two epochs of 6 steps, a dev score every 2, dropout as in the checkpoint, one entropy encoder."""
    values = tiny_values(encoder, training={"batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "max_length": 20})
    values["selection"] = {"task": "stsb-dev", "every_fraction": 0.33}
    methods = values["methods"]
    assert isinstance(methods, dict)
    methods["rcl"] = {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01]}
    return values


def prepared(values: dict[str, Json], data: Path, store: Path) -> tuple[Train, Context]:
    plan, context = tiny_plan(values, data=data, store=store)
    train = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == "rcl")
    for stage in plan.stages:
        if stage.kind != "scores" and stage is not train and stage.key != train.key:
            build_here(stage, context)
    return train, context


def test_a_training_through_rungs_is_the_training(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_data(tmp_path / "data")
    train, context = prepared(values_of(tiny_encoder_dir), data, tmp_path / "store")
    whole = build_here(train, context)
    other, elsewhere = prepared(values_of(tiny_encoder_dir), data, tmp_path / "other")
    elsewhere = replace(elsewhere, shares=SHARES)
    assert other.key == train.key
    reported: list[int] = []
    total = 0.0
    for share in SHARES:
        rung = build_here(
            to_share(other, share), elsewhere, listen=lambda stage, session, event: reported.append(getattr(event, "step", -1))
        )
        assert rung.record.kind == "rung"
        assert (rung.record.results["step"], rung.record.results["num_steps_planned"]) == ({0.2: 4, 0.5: 6}[share], 12)
        results: Any = rung.record.results
        assert rung.record.seconds == pytest.approx(results["seconds_total"] - total, abs=1e-2), "what lies below it is not its own"
        total = results["seconds_total"]
        best = max(score for _, score in results["dev_history"])
        assert [results["best_step"], results["best_dev_score"]] == next(point for point in results["dev_history"] if point[1] == best)
    again = build_here(other, elsewhere)

    assert sorted(set(reported)) == [-1, *range(7)], "each step once, none of it again"
    one, two = (load_file(Path(artifact.uri) / "model.safetensors") for artifact in (whole, again))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    for field in ("num_steps", "best_step", "best_dev_score", "final_loss"):
        assert whole.record.results[field] == again.record.results[field]
    assert again.record.results["sentences_before"] == 6 * 8 * 3
    assert again.record.seconds > float(str(again.record.results["seconds_before"])) > 0
    # What is known of a share is the same wherever it is read.
    assert all(
        replace(known, seconds=0) == replace(here, seconds=0)
        for share in SHARES
        if (known := rung_score(train, share, context)) and (here := rung_score(other, share, elsewhere))
    )
    first = rung_score(other, 0.2, elsewhere)
    assert first is not None and first.step == 4
    assert rung_score(train, 1.0, context) == replace(rung_score(other, 1.0, elsewhere) or first, seconds=whole.record.seconds)


def test_a_rung_of_no_use_is_not_gone_on_from(tmp_path: Path, tiny_encoder_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = values_of(tiny_encoder_dir)
    train, context = prepared(values, write_data(tmp_path / "data"), tmp_path / "store")
    context = replace(context, shares=SHARES)
    rung = build_here(Rung(of=train, share=0.2), context)
    (Path(rung.uri) / "checkpoint" / "engine.pt").write_bytes(b"damaged")
    half = build_here(Rung(of=train, share=0.5), context)
    assert "is of no use" in caplog.text
    assert half.record.results["step"] == 6 and "seconds_before" not in half.record.results


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


def test_a_training_through_rungs_of_zero_3_is_the_training(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = values_of(tiny_encoder_dir) | {"runtime": {"engine": "deepspeed", "zero_stage": 3, "workers": 2}}
    data = write_data(tmp_path / "data")
    prepared(values, data, tmp_path / "store")
    run = partial(run_in_processes, _on_rank, 2, values, data, tmp_path / "store", tmp_path)
    (whole,), through = run(())[0], run(SHARES)[0]
    assert [(one["begins"], one["ends"], one["note"]) for one in through] == [(0, 4, None), (4, 6, None), (6, 12, None)]
    assert whole["history"] == through[-1]["history"] and len(whole["history"]) == 6
    assert whole["last"].keys() == through[-1]["last"].keys()
    assert all(torch.equal(whole["last"][name], through[-1]["last"][name]) for name in whole["last"])
    one, two = (load_file(tmp_path / f"{number}-1.0-rank-0" / "model.safetensors") for number in (0, len(SHARES)))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert whole["results"]["best_step"] == through[-1]["results"]["best_step"]
