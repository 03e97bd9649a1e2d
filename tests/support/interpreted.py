"""Programs in which Triton interprets a GPU's kernels, or compiles them for a GPU that is not there: in a process of their own, since it
stands beside the environment and must know before it is imported whether it interprets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BESIDE = Path(sys.prefix) / "triton"  # infra/test.sh puts it there


def run_interpreted(module: str, *arguments: str) -> list[Any]:
    """What a program printed, a line of JSON each."""
    return run_with_triton(module, *arguments, TRITON_INTERPRET="1")


def run_with_triton(module: str, *arguments: str, **environment: str) -> list[Any]:
    if not BESIDE.is_dir() and find_spec("triton") is None:
        pytest.skip(f"Triton is not in {BESIDE}, where infra/test.sh puts it")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(BESIDE)])} | environment
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
