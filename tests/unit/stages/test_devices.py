"""Where one process computes, and a forecast on GPUs that were not tried."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from sentdist.errors import RecipeError, ResourceError
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Bank, Train
from sentdist.stages import devices
from sentdist.stages.devices import device_of, on_this_machine
from sentdist.stages.gpu_memory import check_precisions
from sentdist.stages.planning.device_forecast import PEAKS, UTILISATION, Devices, device_forecast, operations_of, parameters_by
from tests.support.planning import RECIPES, plan_of, shipped_plan, small_recipe


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:512")  # chosen, so that these processes leave it


@pytest.mark.parametrize(
    ("asked", "num_gpus", "device", "said"),
    [
        ({}, 8, "cuda", "on Model T; idle: 7 other GPUs (one process uses one; a Ray cluster uses all)"),
        ({"device": "cpu"}, 2, "cpu", "on the CPU, as runtime.device or runtime.gpus_per_worker asks; idle: 2 GPUs"),
        ({"gpus_per_worker": 4}, 1, "cuda", "on Model T"),
        ({"gpus_per_worker": 1}, 0, "cpu", "on the CPU: torch can use no GPU here"),
    ],
)
def test_a_process_takes_a_gpu_where_there_is_one(
    asked: dict[str, Any], num_gpus: int, device: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=0: "Model T")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(devices, "_num_there", lambda: num_gpus)
    runtime, line = on_this_machine(Runtime.model_validate(asked))
    assert (device_of(runtime).type, line) == (device, said)
    if num_gpus == 0:
        with pytest.raises(ResourceError, match=r"runtime\.device=cuda: found no GPU"):
            on_this_machine(Runtime(device="cuda"))
    assert runtime.gpus_per_worker == (device == "cuda"), "all of it: an error for a full one would name a part that nothing bounds"


def test_a_precision_is_refused_where_nothing_computes_in_it() -> None:
    plain = shipped_plan(RECIPES / "demo.yaml").stages
    for precision, gpus, old_gpu, said in (
        ("tf32", 0.0, None, "on CPUs"), ("tf32", 1.0, "T4", "T4"), ("bf16", 1.0, "T4", "T4"), ("bf16", 0.0, "T4", None), ("tf32", 1.0, None, None),
    ):  # fmt: skip
        stages = shipped_plan(RECIPES / "demo.yaml", f"training.precision={precision}").stages
        with pytest.raises(ResourceError, match=f"(?s)precision={precision}.*{said}") if said else nullcontext():
            check_precisions(stages, Runtime().with_gpus(gpus), old_gpu=old_gpu)
        check_precisions(plain, Runtime().with_gpus(gpus), old_gpu=old_gpu)


def test_names_of_gpus() -> None:
    assert Devices.named("8xH100") == Devices.named(" 8Xh100 ") == Devices(name="H100", count=8, peak=989)
    assert Devices.named("L4").count == 1 and Devices.named("rtx 4090").name == "RTX4090"
    with pytest.raises(RecipeError, match=r"found 0xH100; .* Name one GPU or more\."):
        Devices.named("0xH100")
    for wrong in ("8xH1000", "0xH100", "8", ""):
        with pytest.raises(RecipeError, match="COUNTxGPU"):
            Devices.named(wrong)


def test_operations_are_those_of_the_formula() -> None:
    plan = plan_of(small_recipe(training={"batch_size": 10, "epochs": 2, "max_length": 16}))
    train = next(one for one in plan.stages if isinstance(one, Train) and one.objective.name == "rcl")
    entropy = next(one for one in plan.stages if isinstance(one, Train) and one.objective.name == "entropy")
    bank = next(one for one in plan.stages if isinstance(one, Bank))
    rows = plan.rows[train.corpus.key]
    million = parameters_by(lambda encoder: {"hidden_size": 100, "num_hidden_layers": 0 or None, "vocab_size": 1})
    assert million(train.encoder) == (1 + 512) * 100 + 12 * (4 * 100**2 + 2 * 100 * 400)
    once = 6 * 1e6 * rows * 3 * 2 * 16
    assert operations_of(train, plan, lambda encoder: 1e6) == once
    again = dataclasses.replace(plan, recipe=small_recipe(runtime={"micro_batch": 4}))
    assert operations_of(train, again, lambda encoder: 1e6) == once * 8 / 6
    frozen = train.model_copy(update={"training": train.training.model_copy(update={"freeze_encoder": True})})
    assert operations_of(frozen, plan, lambda encoder: 1e6) == operations_of(frozen, again, lambda encoder: 1e6) == once / 3
    assert operations_of(bank, plan, lambda encoder: 1e6) == 2 * 1e6 * rows * 3 * 16
    read = dataclasses.replace(plan, tokens={train.corpus.key: 4.0})
    assert operations_of(train, read, lambda encoder: 1e6) == once / 4
    assert operations_of(train, dataclasses.replace(plan, tokens={train.corpus.key: 400.0}), lambda encoder: 1e6) == once, "they are cut"
    stopped = operations_of(entropy, plan, lambda encoder: 1e6) / once
    assert stopped == pytest.approx(1.0 if entropy.stopping is None else 0.05)


def test_gpus_share_the_work_but_not_what_must_follow() -> None:
    plan = plan_of(small_recipe())
    one, many = (device_forecast(plan, Devices.named(name), lambda encoder: 1e6) for name in ("H100", "1000xH100"))
    assert one.gpu_hours == many.gpu_hours == one.operations / (UTILISATION * PEAKS["H100"] * 1e12) / 3600
    assert one.seconds == pytest.approx(3600 * one.gpu_hours)
    assert many.seconds == many.longest / many.devices.speed > one.seconds / 1000
    slower = device_forecast(plan, Devices.named("L4"), lambda encoder: 1e6)
    assert slower.seconds / one.seconds == pytest.approx(PEAKS["H100"] / PEAKS["L4"])
    assert device_forecast(plan, Devices.named("H100"), lambda encoder: 1e6, missing=()).operations == 0
