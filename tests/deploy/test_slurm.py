"""slurm.sh with programs in place of Slurm's and Ray's: how a job ends."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What `ray symmetric-run … -- COMMAND` does where Ray starts, and where it does not: it ends with 0 all the same.
RUNS = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
# Slurm tells every process of a step to end, and by force those that are there half a minute later.
IS_ENDED = 'while [ "$1" != --temp-dir ]; do shift; done; mkdir -p "$2/session"; echo "in $2"; kill -TERM 0; sleep 60'
DOES_NOT_START = 'echo "Failed to start Ray" >&2; exit 0'


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sd-", dir="/tmp") as folder:
        yield Path(folder)


def _job(short: Path, *, ray: str, sweep: str = "exit 0", host: int = 0) -> subprocess.CompletedProcess[str]:
    programs = {
        "ray": ray,
        "python": f'echo "sweep: $*"; {sweep}',
        "scontrol": "echo localhost",
        "srun": 'while [[ "$1" == --* ]]; do shift; done; exec setsid "$@"',
    }
    for name, does in programs.items():
        (short / name).write_text(f"#!/bin/bash\n{does}\n")
        (short / name).chmod(0o755)
    environment = {
        "PATH": f"{short}:{os.environ['PATH']}", "HOME": str(short), "SENTDIST_TEMP": str(short), "SLURM_JOB_NODELIST": "x",
        "SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": str(host),
    }  # fmt: skip
    command = ["bash", "cluster/slurm.sh", "recipe.yaml", "--set", "name=a b"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_a_job_in_which_ray_does_not_start_has_failed(short: Path) -> None:
    done = _job(short, ray=DOES_NOT_START)
    assert done.returncode != 0
    assert "Stopped: Ray did not start" in done.stderr


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_job_ends_as_the_sweep_does(short: Path, code: int) -> None:
    done = _job(short, ray=RUNS, sweep=f"exit {code}")
    assert done.returncode == code, done.stderr
    assert "sweep: -m rayjobs.sweep recipe.yaml --set name=a b" in done.stdout
    assert not list(short.glob("sentdist-*/77*")), "nothing is left in the temporary folder"


def test_a_job_that_slurm_ends_leaves_nothing_in_the_temporary_folder(short: Path) -> None:
    """What Ray spilled of a sweep stayed on the disk of each host, with every job that was cancelled, preempted or queued again."""
    done = _job(short, ray=IS_ENDED)
    assert done.returncode == 143, done.stderr
    assert f"in {short}/sentdist-" in done.stdout
    assert "Stopped:" not in done.stderr
    assert not list(short.glob("sentdist-*/77*"))
