"""A training whose number of workers follows the cluster: hosts leave, others come, and its loss stays that of the whole batch."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sentdist.stages.local import build_here
from tests.cluster.host_jobs import CHANGING, planned
from tests.cluster.hosts import Hosts
from tests.support.tiny_data import write_data
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200)]


@pytest.mark.usefixtures("one_thread")
def test_a_training_goes_on_with_the_hosts_that_are_left_and_takes_those_that_come(
    two_hosts: Hosts, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    write_data(tmp_path / "data")
    shutil.copytree(tiny_encoder_dir, tmp_path / "encoder")
    lines = tmp_path / "lines"

    def line_with(words: str) -> str:
        def reported() -> list[str]:
            return [line for line in lines.read_text().splitlines() if words in line] if lines.exists() else []

        wait_for(lambda: job.done() or bool(reported()), what=words, seconds=240)
        assert reported(), f"{words}: {job.result()}" if job.done() else words
        return reported()[0]

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(two_hosts.play, "change-hosts", str(tmp_path / "store"), num_hosts=2)
        line_with("step 600/6000")
        two_hosts.kill_node(1)
        assert two_hosts.address(0) in line_with("with 1 worker on host")
        two_hosts.join(2)
        line_with("with 2 workers on host")
        job.result(timeout=600)

    plan, there = planned(str(tmp_path / "store"), *CHANGING)
    _, here = planned(str(tmp_path / "here"), *CHANGING)
    stage = plan.trials[0].scores.encoder
    for needed in plan.stages:
        if needed.kind != "scores":
            build_here(needed, here)
    losses = []
    for context in (here, there):
        artifact = context.store.get(stage)
        assert artifact is not None
        assert artifact.record.runtime["workers"] == (1 if context is here else 2)
        points = map(json.loads, (context.store.folder(artifact) / "history.jsonl").read_text().splitlines())
        losses.append({point["step"]: point["loss"] for point in points})
    assert losses[0].keys() == losses[1].keys()
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
