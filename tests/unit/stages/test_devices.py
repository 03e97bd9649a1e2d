"""Where one process computes, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.plan.runtime import Runtime
from sentdist.stages.devices import device_of, on_this_machine


@pytest.mark.parametrize(
    ("asked", "num_gpus", "device", "said"),
    [
        ({}, 0, "cpu", "on the CPU"),
        ({}, 1, "cuda", "on Model T"),
        ({}, 8, "cuda", "on Model T; idle: 7 other GPUs (one process uses one; a Ray cluster uses all)"),
        ({"device": "cuda"}, 1, "cuda", "on Model T"),
        ({"device": "cpu"}, 2, "cpu", "on the CPU, as runtime.device or runtime.gpus_per_worker asks; idle: 2 GPUs"),
        ({"gpus_per_worker": 0}, 1, "cpu", "on the CPU, as runtime.device or runtime.gpus_per_worker asks; idle: 1 GPU"),
        ({"gpus_per_worker": 4}, 1, "cuda", "on Model T"),
        ({"gpus_per_worker": 1}, 0, "cpu", "on the CPU: torch can use no GPU here"),
    ],
)
def test_a_process_takes_a_gpu_where_there_is_one(
    asked: dict[str, Any], num_gpus: int, device: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Model T")
    runtime, line = on_this_machine(Runtime.model_validate(asked))
    assert (device_of(runtime).type, line) == (device, said)
    assert runtime.gpus_per_worker <= 1


def test_a_gpu_that_is_insisted_on_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ResourceError, match=r"runtime\.device=cuda: found no GPU that torch"):
        on_this_machine(Runtime(device="cuda"))
