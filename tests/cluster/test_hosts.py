"""Several hosts: a recipe with a worker on each, hosts that leave and come, TLS, and a head that is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from sentdist.stages.local import build_here
from sentdist.store.store import ArtifactStore
from tests.cluster.artificial_banks import store_with_banks
from tests.cluster.host_jobs import CHANGING, planned
from tests.cluster.hosts import Hosts, hosts, why_not
from tests.cluster.redis_host import why_no_redis
from tests.faults.environment import Environment, running_environment
from tests.faults.rounds import look_later, play, undisturbed
from tests.faults.selection import Injection, RoundPlan
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.trained import assert_same_results
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200)]  # minutes even on an idle machine
VARIANT = "torch-1"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lost-head")


@pytest.fixture(scope="module")
def environment(logs: Path) -> Iterator[Environment]:
    if reason := why_not() or why_no_redis():
        pytest.skip(reason)
    with running_environment(logs, with_redis=True) as made:
        yield made
        assert look_later(made, wait=True) == []


@pytest.fixture(scope="module")
def expected(environment: Environment, logs: Path) -> dict[str, str]:
    return undisturbed(environment, VARIANT, logs)


@pytest.fixture
def two_hosts() -> Iterator[Hosts]:
    """A Ray cluster of two hosts of a CPU each, with token authentication."""
    if reason := why_not():
        pytest.skip(reason)
    with hosts() as made:
        made.start_head()
        made.join(1)
        yield made


class Job:
    """A job of `host_jobs` and the lines that people would read of it."""

    def __init__(self, hosts: Hosts, name: str, place: Path, encoder: Path, pool: ThreadPoolExecutor) -> None:
        write_data(place / "data")
        shutil.copytree(encoder, place / "encoder")
        self._lines = place / "lines"
        self.done = pool.submit(hosts.play, name, str(place / "store"), num_hosts=2)

    def reported(self, words: str) -> str | None:
        lines = self._lines.read_text().splitlines() if self._lines.exists() else []
        return next((line for line in lines if words in line), None)

    def line_with(self, words: str) -> str:
        wait_for(lambda: self.done.done() or self.reported(words) is not None, what=words, seconds=240)
        line = self.reported(words)
        assert line is not None, self.done.result() if self.done.done() else words
        return line


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


def test_a_training_on_a_host_that_is_taken_away_goes_on(two_hosts: Hosts, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Its machine shuts down, and another one comes: the checkpoint is of that moment, and every line is one of ours."""
    two_hosts.cut(1)  # or it would be where the training goes on
    two_hosts.start_script(3, "several_hosts.sh", NOTICE_S="15", RAY_AUTH_TOKEN_PATH=str(two_hosts.token_file))
    with ThreadPoolExecutor(1) as pool:
        job = Job(two_hosts, "lose-a-host", tmp_path, tiny_encoder_dir, pool)
        job.line_with("step 600/6000")
        two_hosts.end_script(3)
        wait_for(lambda: any((tmp_path / "store/running").glob("*/*/seal-00001.json")), what="a checkpoint at once", seconds=120)
        assert job.reported("it is built again") is None, "it was written before the host was gone"
        job.line_with("it is built again")
        two_hosts.join(4)
        job.line_with("goes on from step")
        printed = job.done.result(timeout=240)
    assert "raylet" not in printed, printed


@pytest.mark.usefixtures("one_thread")
def test_a_training_goes_on_with_the_hosts_that_are_left_and_takes_those_that_come(
    two_hosts: Hosts, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    """A training whose number of workers follows the cluster: its loss stays that of the whole batch."""
    with ThreadPoolExecutor(1) as pool:
        job = Job(two_hosts, "change-hosts", tmp_path, tiny_encoder_dir, pool)
        job.line_with("step 600/6000")
        two_hosts.kill_node(1)
        job.line_with("with 1 worker")
        two_hosts.join(2)
        job.line_with("with 2 workers")
        job.done.result(timeout=600)
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


def test_a_bank_is_read_on_both_hosts_and_a_host_with_another_token_stays_outside(two_hosts: Hosts, tmp_path: Path) -> None:
    store = store_with_banks(tmp_path)
    assert f"held on {two_hosts.address(0)} {two_hosts.address(1)}" in two_hosts.play("look-up", store.root, num_hosts=2)
    with pytest.raises(RuntimeError, match=r"(?s)host 2 did not start.*InvalidAuthToken"):
        two_hosts.join(2, token="0" * 64)


@pytest.mark.parametrize(
    ("number", "fault", "moment"),
    [(0, "kill -9 GCS", "a training has its second checkpoint"), (1, "head gone and back", "RCL trains on its banks")],
)
def test_a_sweep_ends_as_an_undisturbed_one_when_the_head_is_lost(
    number: int, fault: str, moment: str, environment: Environment, expected: dict[str, str], tmp_path: Path
) -> None:
    """It comes back with its tables from Redis, the worker hosts find it, and results are the same bit for bit."""
    plan = RoundPlan(seed=0, number=number, variant=VARIANT, injections=(Injection(fault=fault, moment=moment, lasts_s=4.0),))
    outcome = play(environment, plan, expected, tmp_path)
    assert outcome.injected[0].at_s is not None, "it came too late"
    assert not outcome.wrong, f"{outcome.line}\n{tmp_path}"
