"""One cluster of two hosts with token authentication: banks on both, and a recipe whose training has a worker on each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from sentdist.store.store import ArtifactStore
from tests.cluster.artificial_banks import bank_stage, commit_bank
from tests.cluster.hosts import Hosts, hosts, why_not
from tests.support.tiny_data import tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]  # a minute on an idle machine


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts() as made:
        made.start_head()
        made.join(1)
        yield made


def _with_banks(folder: Path) -> ArtifactStore:
    store = ArtifactStore(folder / "store")
    for number in range(2):
        commit_bank(store, bank_stage(number), num_sentences=1000, width=384, rows_per_shard=400, seed=number)
    return store


def _play(two_hosts: Hosts, scene: str, store: ArtifactStore, *, num_hosts: int) -> str:
    """A job of `host_scenes`; what it printed."""
    done = two_hosts.submit("python", "-m", "tests.cluster.host_scenes", scene, store.root, str(num_hosts))
    assert done.returncode == 0, done.stdout + done.stderr + two_hosts.logs()
    return done.stdout


def test_a_bank_is_read_on_both_hosts(two_hosts: Hosts, tmp_path: Path) -> None:
    store = _with_banks(tmp_path)
    assert f"held on {two_hosts.address(0)} {two_hosts.address(1)}" in _play(two_hosts, "look-up", store, num_hosts=2)


def test_the_whole_recipe_runs_with_a_worker_on_each_host(two_hosts: Hosts, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    values = tiny_values(tiny_encoder_dir, name="two-hosts", baseline=None)
    methods = values["methods"]
    assert isinstance(methods, dict)
    values["methods"] = {name: methods[name] for name in ("entropy", "rcl")} | {"rcl": methods["rcl"] | {"phis": [0.01]}}  # type: ignore[operator]
    # One CPU a host and one a worker: two workers have to stand on two hosts.
    values["runtime"] = {"engine": "deepspeed", "zero_stage": 2, "workers": 2, "cpus_per_worker": 1}
    recipe = tmp_path / "two_hosts.yaml"
    recipe.write_text(yaml.safe_dump(values))
    store, data = tmp_path / "store", write_data(tmp_path / "data", num_rows=32)
    command = ["python", "-m", "rayjobs.sweep", str(recipe), "--store", str(store), "--data", str(data)]
    done = two_hosts.submit(*command, timeout_s=1000)
    assert done.returncode == 0, done.stdout + done.stderr + two_hosts.logs()
    artifacts = list(ArtifactStore(store).artifacts())
    kinds = sorted(artifact.record.kind for artifact in artifacts)
    assert kinds == ["bank", "corpus", "overlap", "overlap", "scores", "tokens", "train", "train"], json.dumps(kinds) + done.stdout


def test_a_host_with_another_token_stays_outside(two_hosts: Hosts) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)host 2 did not start.*InvalidAuthToken"):
        two_hosts.join(2, token="0" * 64)


def test_a_host_that_is_cut_off_takes_no_bank_with_it(two_hosts: Hosts, tmp_path: Path) -> None:
    store = _with_banks(tmp_path)
    assert two_hosts.address(1) in _play(two_hosts, "begin", store, num_hosts=2)
    two_hosts.cut(1)
    assert f"held on {two_hosts.address(0)}\n" in _play(two_hosts, "look-up", store, num_hosts=1)


def test_a_host_that_is_taken_away_is_told_and_its_training_goes_on(two_hosts: Hosts, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Told that it must go, then gone, then replaced by another: the checkpoint is of that moment, and every line is one of ours."""
    write_data(tmp_path / "data")
    shutil.copytree(tiny_encoder_dir, tmp_path / "encoder")
    lines = tmp_path / "lines"

    def told(words: str) -> str | None:
        found = [line for line in lines.read_text().splitlines() if words in line] if lines.exists() else []
        return found[0] if found else None

    def hear(words: str) -> str:
        wait_for(lambda: job.done() or told(words) is not None, what=words, seconds=240)
        line = told(words)
        assert line is not None, job.result() if job.done() else words
        return line

    two_hosts.cut(1)  # or it would be where the training goes on
    two_hosts.join(3)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(_play, two_hosts, "lose-a-host", ArtifactStore(tmp_path / "store"), num_hosts=2)
        hear("step 120/1200")
        two_hosts.drain(3)
        wait_for(lambda: any((tmp_path / "store/running").glob("*/*/seal-00001.json")), what="a checkpoint at once", seconds=120)
        two_hosts.kill_node(3)
        assert "lost, and with it train" in hear(f"host    {two_hosts.address(3)}")
        hear("waits for 2 × 1 CPUs, the cluster has 1 of which 1 are free")
        two_hosts.join(4)
        resumed = hear("goes on from step")
        assert f"host {two_hosts.address(3)} lost; goes on from step" in resumed
        assert two_hosts.address(4) in resumed
        printed = job.result(timeout=240)
    assert "raylet" not in printed, printed
