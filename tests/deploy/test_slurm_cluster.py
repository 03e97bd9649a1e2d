"""slurm.sh on a real Slurm of two hosts: a sweep that Slurm interrupts is queued again and goes on where it was."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sentdist.recipe.stage import Json
from tests.deploy.slurm import Slurm, slurm, why_no_slurm
from tests.support.tiny_data import tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200)]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Slurm]:
    if reason := why_no_slurm():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="sd-", dir="/tmp") as home, slurm(2, Path(home)) as made:
        yield made


def test_a_job_whose_time_ends_goes_on_from_a_checkpoint(queue: Slurm, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    shutil.copytree(tiny_encoder_dir, tmp_path / "encoder")
    objective: Json = {"name": "info_nce", "temperature": 0.05}
    long: Json = {"objective": objective, "select": False, "training": {"epochs": 1000}}
    values = tiny_values(tmp_path / "encoder", methods={"long": long}, baseline=None)
    values["runtime"] = {"engine": "torch", "workers": 2, "checkpoint_every_s": 3600, "gpus_per_worker": 0}
    (tmp_path / "long.yaml").write_text(yaml.safe_dump(values))
    log = tmp_path / "job.log"

    def logged(words: str) -> bool:
        return log.exists() and words in log.read_text()

    places = [str(tmp_path / "long.yaml"), "--store", str(tmp_path / "store"), "--data", str(tmp_path / "data")]
    job = queue.submit("--gpus-per-node=1", "cluster/slurm.sh", *places, num_nodes=2, log=log)
    wait_for(lambda: logged("step 600/6000"), what="steps", seconds=300)
    assert logged("idle: 2 GPU(s)"), "those that Slurm gave the job"
    queue.signal(job, "USR1")
    wait_for(lambda: logged("2 hosts to go within 150 s"), what="the hosts reported", seconds=60)
    wait_for(lambda: queue.facts(job)["JobState"] == "PENDING", what="the job queued again", seconds=120)
    assert list((tmp_path / "store/running").glob("*/*/seal-00001.json")), log.read_text()
    queue.begin(job)
    wait_for(lambda: logged("goes on from step"), what="its checkpoint", seconds=300)
    wait_for(lambda: queue.facts(job)["JobState"] == "COMPLETED", what="the end of the job", seconds=300)
    assert not logged("sentdist submit"), "this is the job already"
    facts = queue.facts(job)
    assert (facts["Restarts"], facts["ExitCode"]) == ("1", "0:0")
