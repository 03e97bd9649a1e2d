"""Where one process computes, and what is said of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.plan.sections import Runtime
from sentdist.stages import devices
from sentdist.stages.devices import device_of, left_out_here, old_gpu_here, on_this_machine, why_unusable


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:512")  # chosen, so that these processes leave it


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
        ({"gpus_per_worker": 0.25}, 1, "cuda", "on Model T"),
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
    assert runtime.gpus_per_worker == (device == "cuda"), "all of it: an error for a full one would name a part that nothing bounds"


def test_a_gpu_that_is_insisted_on_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ResourceError, match=r"runtime\.device=cuda: found no GPU that torch"):
        on_this_machine(Runtime(device="cuda"))


@pytest.mark.parametrize(
    ("cuda", "capability", "hidden", "said"),
    [
        ("13.0", None, None, "that torch cannot use (torch 2.13.0, built for CUDA 13.0): `sentdist doctor` says what to do"),
        (None, None, None, "that torch cannot use (torch 2.13.0, built without CUDA): `sentdist doctor` says what to do"),
        ("13.0", (7, 0), None, "built for CUDA 13.0 and GPUs of compute capability 7.5 or newer; Model T has 7.0): `sentdist doctor`"),
        ("13.0", None, "", ", hidden by CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_named_with_the_reason(
    cuda: str | None, capability: tuple[int, int] | None, hidden: str | None, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """capability: of a GPU that the driver shows to torch; None where it shows none, as a driver that is too old."""
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=0: "Model T")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90a", "compute_120"])
    monkeypatch.setattr(devices, "_num_there", partial(devices._num_there, tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert on_this_machine(Runtime())[1] == "on the CPU", "the driver has made no device"
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    runtime, line = on_this_machine(Runtime())
    assert device_of(runtime).type == "cpu"
    assert line.startswith("on the CPU; idle: 2 GPUs") and said in line, line
    with pytest.raises(ResourceError, match=r"runtime\.device=cuda: found no GPU that torch can use \(torch 2\.13\.0, built"):
        on_this_machine(Runtime(device="cuda"))


def test_what_torch_can_use_needs_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert why_unusable() is None


def test_a_gpu_older_than_ampere_is_named_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    assert old_gpu_here(Runtime().with_gpus(1.0)) == "Tesla T4"
    assert old_gpu_here(Runtime().with_gpus(0.0)) is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert old_gpu_here(Runtime().with_gpus(1.0)) is None


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({}, []),
        ({"engine": "torch", "cpus_per_worker": 4}, []),
        ({"workers": 4}, ["runtime.workers=4"]),
        ({"workers": [1, 4]}, ["runtime.workers=4"]),
        ({"workers": 2, "zero_stage": 3}, ["runtime.workers=2", "runtime.zero_stage=3"]),
        ({"gpu_type": "A100"}, ["runtime.gpu_type=A100"]),
    ],
)
def test_what_a_process_of_its_own_does_not_do_for_a_recipe_is_reported(asked: dict[str, Any], named: list[str]) -> None:
    said = left_out_here(Runtime.model_validate(asked))
    assert bool(said) == bool(named) and all(name in said for name in named)
