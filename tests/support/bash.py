"""Lines of bash as the scripts run them, in an environment of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bash(script: str, *, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = ("SENTDIST_", "RAY_", "MLFLOW_", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    inherited["PATH"] = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    done = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(done, cwd=cwd, env=inherited | environment, capture_output=True, text=True, timeout=60, check=False)


def heeds_ctrl_c() -> None:
    """Where the tests run behind an `&`, they were set not to, and so is what they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
