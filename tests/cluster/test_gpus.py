"""Stages on GPUs that Ray only believes in: a process stays with one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


def _said(program: str, *arguments: str) -> list[str]:
    """What a program says, on a cluster of its own, for that of the other tests has no GPUs."""
    with tempfile.TemporaryDirectory(prefix="sd-gpu-", dir="/tmp") as folder:  # short: paths of sockets may have 107 letters
        environment = os.environ | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "0,1"}
        environment.pop("RAY_ADDRESS", None)
        command = [sys.executable, "-W", "ignore", "-m", f"tests.cluster.{program}", folder, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()


@pytest.mark.in_turns(0)
def test_a_process_stays_with_its_gpu_and_serves_stage_after_stage() -> None:
    seen = [tuple(line) for line in json.loads(_said("fake_gpus")[-1])]
    scored = [(process, gpu) for kind, process, gpu, _ in seen if kind == "scores"]
    on_one_gpu, on_both = {process for process, _ in scored[:6]}, scored[6:]
    assert sorted(gpu for _, gpu in set(scored[:6])) == ["0", "1"], "two processes, and each sees one GPU and always the same"
    assert [sorted(gpus.split(",")) for _, gpus in on_both] == [["0", "1"]]
    assert not on_one_gpu & {process for process, _ in on_both}, "a process that had a GPU ends with its workers"
    assert not on_one_gpu & {process for kind, process, *_ in seen if kind == "corpus"}
    assert [of_kind for *_, of_kind in seen] == [0.001] * 6 + [0, 0], "only those that ask for this kind of GPU reserve something of it"


@pytest.mark.nightly
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch can use a GPU here")
def test_gpus_that_torch_cannot_use_are_reported_in_a_sentence_by_a_group_too(tiny_encoder_dir: Path) -> None:
    """Of the default engine it was a traceback of Ray Train's and NCCL's."""
    lines = _said("unusable_gpus", str(tiny_encoder_dir))
    (failed,) = [line for line in lines if line.startswith("FAILED")]
    found = f"ResourceError: runtime.gpus_per_worker: found a node with a GPU that torch cannot use ({socket.gethostname()}: torch "
    assert found in failed and "Look at `nvidia-smi`" in failed, lines
