"""An encoder made ready for use, on the device that there is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.plan.specs import EncoderUse


def test_a_gpu_that_torch_has_no_kernels_for_is_left_alone(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sentdist encode` said "on the CPU", and ended at the first kernel on the GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100")
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)))
    assert loaded.encoder.device.type == "cpu"
    assert loaded.embed(["a man sleeps"]).shape == (1, loaded.width)


def test_how_a_gpus_memory_is_kept_is_said_before_torch_is_asked(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch reads it once."""
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")  # put back after the test
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    read = []

    def is_available() -> bool:
        read.append(os.environ.get("PYTORCH_ALLOC_CONF"))
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)))
    assert set(read) == {"expandable_segments:True"}
