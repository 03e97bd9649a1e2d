"""Programs in which Triton interprets a GPU's kernels: in a process of their own, which it must know before it is imported."""

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


def run_interpreted(module: str) -> list[Any]:
    """What a program printed, a line of JSON each."""
    if not BESIDE.is_dir() and find_spec("triton") is None:
        pytest.skip(f"Triton is not in {BESIDE}, where infra/test.sh puts it")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(BESIDE)])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
