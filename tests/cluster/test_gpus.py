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


def test_a_process_stays_with_its_gpu_and_serves_stage_after_stage() -> None:
    """In a program of its own, for the cluster of the other tests has no GPUs."""
    with tempfile.TemporaryDirectory(prefix="sd-gpu-", dir="/tmp") as folder:  # short: paths of sockets may have 107 letters
        environment = os.environ | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "0,1"}
        environment.pop("RAY_ADDRESS", None)
        command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.fake_gpus", folder]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        seen = [tuple(line) for line in json.loads(done.stdout.splitlines()[-1])]
    scored = [(process, gpu) for kind, process, gpu in seen if kind == "scores"]
    on_gpus, later = scored[:6], scored[6:]
    assert len(later) == 2
    assert not {process for process, _ in on_gpus} & {process for process, _ in later}, "a process that had a GPU ends with its workers"
    assert sorted(gpu for _, gpu in set(on_gpus)) == ["0", "1"], "two processes, and each sees one GPU and always the same"
    assert not {process for process, _ in on_gpus} & {process for kind, process, _ in seen if kind == "corpus"}
