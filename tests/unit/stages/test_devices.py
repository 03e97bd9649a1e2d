"""Where one process computes, and in which precision."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.recipe.sections import Runtime
from sentdist.stages.fit import check_precisions, device_of, on_this_machine
from tests.support.planning import RECIPES, shipped_plan


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:512")  # chosen, so that these processes leave it


@pytest.mark.parametrize(
    ("asked", "num_gpus", "device", "said"),
    [
        ({}, 8, "cuda", "on Model T; idle: 7 other GPUs (one process uses one; a Ray cluster uses all)"),
        ({"device": "cpu"}, 2, "cpu", "on the CPU, as runtime.device or runtime.gpus_per_worker asks"),
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
    runtime, line = on_this_machine(Runtime.model_validate(asked))
    assert device_of(runtime).type == device and line.startswith(said)
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
