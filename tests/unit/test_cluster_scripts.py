"""What the scripts of cluster/ give to Ray: addresses, devices, a private folder and token. Programs are stood in for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = {
    "ray": 'printf "ray %s\\n" "$*"; env | grep -E "^RAY" | sort; [ -z "${SENTDIST_ENDED:-}" ] || echo 0 >"$SENTDIST_ENDED"',
    "scontrol": "echo localhost",
    "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
}
HOSTS = {"HEAD_IP": "10.0.0.5", "NODE_IP": "10.0.0.6"}
SLURM = {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "1"}
SCRIPTS = {"one_host.sh": HOSTS, "several_hosts.sh": HOSTS, "slurm.sh": SLURM}


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sd-", dir="/tmp") as folder:
        yield Path(folder)


def _started(script: str, short: Path, **given: str) -> subprocess.CompletedProcess[str]:
    for name, does in TOOLS.items():
        (short / name).write_text(f"#!/bin/bash\n{does}\n")
        (short / name).chmod(0o755)
    ours = ("SENTDIST_", "RAY_", "MLFLOW_", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{short}:{Path(sys.executable).parent}:{inherited['PATH']}"
    environment = inherited | {"PATH": path, "HOME": str(short), "SENTDIST_TEMP": str(short), "PYTHONPATH": str(ROOT)} | given
    command = ["bash", f"cluster/{script}", "recipe.yaml"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def _given_to_ray(script: str, short: Path, **given: str) -> tuple[list[str], dict[str, str]]:
    """The words that `ray` gets from a script, and its environment."""
    done = _started(script, short, RAY_ADDRESS="10.9.9.9:6379", **given)
    assert done.returncode == 0, done.stderr
    (words,) = [line.split() for line in done.stdout.splitlines() if line.startswith("ray ")]
    return words, dict(line.split("=", 1) for line in done.stdout.splitlines() if re.match(r"RAY\w*=", line))


def _option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_a_head_keeps_its_dashboard_on_loopback_and_folder_and_token_to_its_owner(short: Path) -> None:
    words, found = _given_to_ray("one_host.sh", short, GPUS="8", CPUS="64", **HOSTS)
    assert (_option(words, "--node-ip-address"), _option(words, "--dashboard-host")) == ("10.0.0.5", "127.0.0.1")
    assert (_option(words, "--num-cpus"), _option(words, "--num-gpus")) == ("64", "8")
    assert found["RAY_AUTH_MODE"] == "token" and "RAY_ADDRESS" not in found, "of another cluster"
    assert (short / ".sentdist_ray_token").stat().st_mode & 0o077 == 0
    folder = Path(_option(words, "--temp-dir")).parent
    assert folder == short / f"sentdist-{os.getuid()}" and folder.stat().st_mode & 0o777 == 0o700


def test_no_script_starts_ray_in_a_planted_folder(short: Path) -> None:
    (short / ".sentdist_ray_token").write_text("secret")
    (short / "theirs").mkdir()
    (short / f"sentdist-{os.getuid()}").symlink_to(short / "theirs")
    for script, given in SCRIPTS.items():
        done = _started(script, short, **given)
        assert done.returncode != 0 and "found a link" in done.stderr and "--temp-dir" not in done.stdout
