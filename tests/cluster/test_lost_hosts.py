"""Hosts that are cut off or taken away: what lay on them is read elsewhere, and their trainings go on."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.artificial_banks import store_with_banks
from tests.cluster.hosts import Hosts
from tests.support.tiny_data import write_data
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200)]  # minutes even on an idle machine


def test_a_host_that_is_cut_off_takes_no_bank_with_it(two_hosts: Hosts, tmp_path: Path) -> None:
    store = store_with_banks(tmp_path)
    assert two_hosts.address(1) in two_hosts.play("begin", store.root, num_hosts=2)
    two_hosts.cut(1)
    assert f"held on {two_hosts.address(0)}\n" in two_hosts.play("look-up", store.root, num_hosts=1)


def test_a_host_that_is_taken_away_is_reported_and_its_training_goes_on(two_hosts: Hosts, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Its machine shuts down, and another one comes: the checkpoint is of that moment, and every line is one of ours."""
    write_data(tmp_path / "data")
    shutil.copytree(tiny_encoder_dir, tmp_path / "encoder")
    lines = tmp_path / "lines"

    def reported(words: str) -> str | None:
        found = [line for line in lines.read_text().splitlines() if words in line] if lines.exists() else []
        return found[0] if found else None

    def line_with(words: str) -> str:
        wait_for(lambda: job.done() or reported(words) is not None, what=words, seconds=240)
        line = reported(words)
        assert line is not None, job.result() if job.done() else words
        return line

    two_hosts.cut(1)  # or it would be where the training goes on
    two_hosts.start_script(3, "several_hosts.sh", NOTICE_S="15", RAY_AUTH_TOKEN_PATH=str(two_hosts.token_file))
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(two_hosts.play, "lose-a-host", str(tmp_path / "store"), num_hosts=2)
        line_with("step 600/6000")
        two_hosts.end_script(3)
        wait_for(lambda: any((tmp_path / "store/running").glob("*/*/seal-00001.json")), what="a checkpoint at once", seconds=120)
        assert reported(f"host    {two_hosts.address(3)}") is None, "it was written before the host was gone"
        assert "lost, and with it train" in line_with(f"host    {two_hosts.address(3)}")
        line_with("waits for 2 × 1 CPUs, the cluster has 1 of which 1 are free")
        two_hosts.join(4)
        resumed = line_with("goes on from step")
        assert f"host {two_hosts.address(3)} lost; goes on from step" in resumed
        assert two_hosts.address(4) in resumed
        printed = job.result(timeout=240)
    assert "raylet" not in printed, printed
