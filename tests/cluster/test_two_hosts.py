"""One cluster of two hosts with token authentication: banks on both, and a recipe whose training has a worker on each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sentdist.store.store import ArtifactStore
from tests.cluster.artificial_banks import store_with_banks
from tests.cluster.hosts import Hosts
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.trained import assert_same_results

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]  # a minute on an idle machine


def test_a_bank_is_read_on_both_hosts(two_hosts: Hosts, tmp_path: Path) -> None:
    store = store_with_banks(tmp_path)
    assert f"held on {two_hosts.address(0)} {two_hosts.address(1)}" in two_hosts.play("look-up", store.root, num_hosts=2)


@pytest.mark.nightly
def test_the_whole_recipe_with_a_worker_on_each_host_gives_the_parameters_of_one_process(
    two_hosts: Hosts, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    """Everything at once: ZeRO-2 trainings, a bank embedded by a pool of workers and looked up in the object store of each host."""
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
    kinds = sorted(artifact.record.kind for artifact in ArtifactStore(store).artifacts())
    assert kinds == ["bank", "corpus", "overlap", "overlap", "scores", "tokens", "train", "train"], json.dumps(kinds) + done.stdout
    plan, on_hosts = tiny_plan(values, data=data, store=store)
    _, here = tiny_plan(values, data=data, store=tmp_path / "here")
    run_local(plan, here)
    assert_same_results(plan, here, on_hosts)
    assert not list((store / "running").glob("*"))


@pytest.mark.nightly
def test_a_host_with_another_token_stays_outside(two_hosts: Hosts) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)host 2 did not start.*InvalidAuthToken"):
        two_hosts.join(2, token="0" * 64)
