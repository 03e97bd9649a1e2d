"""Disks that are full or read-only under a sweep: one sentence says why, what is finished stays, and submitting again ends it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import StoreError
from sentdist.plan.stage import Json
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

LIGHT: Json = {"engine": "torch", "bank_in_object_store": False, "max_failures": 0, "checkpoint_every_s": 0.01, "log_every": 1}


@contextmanager
def _small_disk(folder: Path, *, megabytes: int) -> Iterator[Path]:
    """A disk of its own, which can be filled and made read-only without anybody else noticing."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"this machine mounts no tmpfs: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(folder: Path) -> Path:
    """To the last byte."""
    filler = folder / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(bytes(2**16))
                file.flush()
    except OSError:
        return filler


def _remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_store_in_trouble_ends_the_sweep_in_one_sentence_and_submitting_again_ends_it_well(
    cluster: Any, tiny_encoder_dir: Path, tmp_path: Path, trouble: str
) -> None:
    from sentdist.execution.sweep import run_sweep

    data = write_data(tmp_path / "data", num_rows=32)
    with _small_disk(tmp_path / "disk", megabytes=60) as disk:
        plan, context = tiny_plan(tiny_values(tiny_encoder_dir, runtime=LIGHT), data=data, store=disk / "store")
        lines: list[str] = []
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run_sweep, plan, context, print_line=lines.append)
            wait_for(lambda: running.done() or any("  train" in line and "done" in line for line in lines), what="the first training")
            finished = {artifact.key for artifact in context.store.artifacts()}
            filler = _fill(disk) if trouble == "full" else None
            if trouble == "read-only":
                _remount(disk, "ro")
            summary = running.result(timeout=300)
        assert summary.failures
        assert all(isinstance(failure.error, StoreError) for failure in summary.failures), summary.lines
        (reported,) = [line for line in summary.lines if line.startswith("FAILED")]  # one cause, one line
        assert ("no space left" if trouble == "full" else "a read-only file system") in reported
        if filler is not None:
            filler.unlink()
        else:
            _remount(disk, "rw")
        assert finished <= {artifact.key for artifact in context.store.artifacts()}
        again = run_sweep(plan, context, print_line=lines.append)
        assert not again.failures, again.lines
        assert all(context.store.damage(artifact) is None for artifact in context.store.artifacts())


def test_a_scratch_disk_without_room_for_tunes_own_files_loses_no_score(
    cluster: Any, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    from sentdist.execution.sweep import run_sweep

    data = write_data(tmp_path / "data", num_rows=32)
    with _small_disk(tmp_path / "scratch", megabytes=1) as scratch:
        _fill(scratch)
        monkeypatch.setattr(tempfile, "tempdir", str(scratch))
        plan, context = tiny_plan(tiny_values(tiny_encoder_dir, runtime=LIGHT), data=data, store=tmp_path / "store")
        lines: list[str] = []
        summary = run_sweep(plan, context, print_line=lines.append)
        without_scores = [
            failure for failure in summary.failures if failure.key not in {one.key for one in context.store.artifacts("scores")}
        ]
        assert summary.failures == tuple(without_scores)
        assert all("TMPDIR" in failure.message for failure in summary.failures), summary.lines
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert not run_sweep(plan, context, print_line=lines.append).failures
