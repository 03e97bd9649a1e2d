"""What `sentdist doctor` says of GPUs: what the driver sees, and whether the torch that is installed can use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sentdist.execution import health

TWO = "NVIDIA T1, 81559 MiB, 570.1\nNVIDIA T1, 81559 MiB, 570.1"


@pytest.mark.parametrize(
    ("answer", "exit_code", "torch", "state", "said"),
    [
        (None, 0, "2.13.0", "note", "none, or no driver"),
        (TWO, 0, "2.13.0", "good", "2 × NVIDIA T1 of 81559 MiB; driver 570.1; NCCL 2.27.5"),
        (TWO, 0, "2.13.0+cpu", "bad", "torch 2.13.0+cpu is built without CUDA"),
        ("NVIDIA-SMI has failed because it couldn't communicate", 9, "2.13.0", "bad", "nvidia-smi finds none (NVIDIA-SMI has failed"),
    ],
)
def test_gpus_are_told_with_driver_and_nccl(
    answer: str | None, exit_code: int, torch: str, state: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f'#!/bin/sh\necho "{answer}"\nexit {exit_code}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    versions = {"torch": torch, "nvidia-nccl-cu13": "2.27.5"}
    monkeypatch.setattr(health, "_version", versions.get)
    found = health.gpus()
    assert (found.subject, found.state) == ("GPUs", state)
    assert said in found.text, found.text
