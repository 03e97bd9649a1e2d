"""Stages on GPUs that Ray only believes in: a process stays with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


def test_a_process_serves_one_stage_on_one_gpu() -> None:
    """In a program of its own, for the cluster of the other tests has no GPUs."""
    with tempfile.TemporaryDirectory(prefix="sd-gpu-", dir="/tmp") as folder:  # short: paths of sockets may have 107 letters
        environment = os.environ | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "0,1"}
        environment.pop("RAY_ADDRESS", None)
        command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.fake_gpus", folder]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
    on_gpus, on_cpus = found["gpu"], found["cpu"]
    assert {visible for _, visible in on_gpus} == {"0", "1"}
    assert len({process for process, _ in on_gpus}) == 4, "a process that served a GPU is not used again: CUDA stays with the first it sees"
    assert not {process for process, _ in on_gpus} & {process for process, _ in on_cpus}
