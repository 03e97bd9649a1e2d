"""A sweep on a cluster that starts without workers: Ray's autoscaler adds nodes as the sweep asks for them, and takes them away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from sentdist.services.processes import free_port
from tests.support.tiny_data import tiny_values, write_data
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
MARK = "SENTDIST_TEST_AUTOSCALING"  # every process of the cluster inherits it
IDLE_S = 8.0  # then a node is taken away
HEAD_NODE = "f" * 51 + "00000"  # the id by which Ray's own tests know the head


class GrowingCluster:
    """A head without CPUs, and up to two nodes of one CPU each that Ray's own autoscaler starts on this machine."""

    def __init__(self, folder: Path) -> None:
        port, client_port = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        config = folder / "cluster.yaml"
        config.write_text(json.dumps(_launcher_file(self.address)))
        self.environment = os.environ | {
            MARK: str(folder), "RAY_AUTH_MODE": "disabled", "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_NODE,
            "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_ADDRESS": self.address, "SENTDIST_GROWS_TO": '[{"nodes": 2, "CPU": 1}]',
        }  # fmt: skip
        command = [Path(sys.executable).parent / "ray", "start", "--head", f"--port={port}", "--num-cpus=0"]
        command += [
            f"--autoscaling-config={config}",
            f"--temp-dir={folder}/ray",
            "--include-dashboard=false",
            "--node-ip-address=127.0.0.1",
        ]
        command += [f"--object-store-memory={90 * 2**20}", f"--ray-client-server-port={client_port}"]
        environment = {name: value for name, value in self.environment.items() if name != "RAY_ADDRESS"}
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def num_raylets(self) -> int:
        return sum(title.partition(" ")[0].endswith("/raylet") for _, title in self._processes())

    def end(self) -> None:
        for pid, _ in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self._processes(), what="its processes to end", seconds=30)  # until then they write into its folder

    def _processes(self) -> list[tuple[int, str]]:
        found, mark = [], f"{MARK}={self.folder}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it went away by itself meanwhile
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append((int(process.name), (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        return found


@pytest.fixture
def growing() -> Iterator[GrowingCluster]:
    folder = Path(tempfile.mkdtemp(prefix="sd-grow-", dir="/tmp"))  # short: paths of sockets may have 107 letters
    cluster = GrowingCluster(folder)
    try:
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.nightly
def test_a_sweep_asks_for_what_a_cluster_may_become(growing: GrowingCluster, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    data, recipe = write_data(tmp_path / "data"), tmp_path / "tiny.yaml"
    fine_tuned = {"fine_tuned": {"objective": {"name": "info_nce", "temperature": 0.05}}}
    runtime = {"engine": "torch", "workers": 1}
    recipe.write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir, methods=fine_tuned, baseline=None, seeds=[0, 1], runtime=runtime)))
    assert growing.num_raylets() == 1, "the head alone"
    command = [sys.executable, "-m", "sentdist", "sweep", str(recipe), "--no-grid", "--store", str(tmp_path / "store"), "--data", str(data)]
    environment = {name: value for name, value in growing.environment.items() if name != MARK}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    most = 1
    deadline = time.monotonic() + 150
    while process.poll() is None and time.monotonic() < deadline:
        most = max(most, growing.num_raylets())
        time.sleep(0.2)
    process.kill()
    reported, _ = process.communicate()
    assert process.returncode == 0, reported[-3000:]
    assert "2 trainings at once" in reported
    assert "1 node of 3 is there; the autoscaler adds the others when work waits for them." in reported
    assert most == 3, "both nodes came, for two trainings at once"
    wait_for(lambda: growing.num_raylets() == 1, what="the nodes to be taken away", seconds=120)


def _launcher_file(address: str) -> dict[str, object]:
    lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    return {
        "cluster_name": "growing",
        "max_workers": 2,
        "upscaling_speed": 100,
        "idle_timeout_minutes": IDLE_S / 60,
        "provider": {"type": "fake_multinode", "gcs_address": address, "use_node_id_as_ip": True, "disable_node_updaters": True},
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": {"CPU": 1, "object_store_memory": 90 * 2**20}, "node_config": {}, "max_workers": 2},
        },
        "head_node_type": "ray.head.default",
        "auth": {}, "file_mounts": {}, "cluster_synced_files": [], "file_mounts_sync_continuously": False, "rsync_exclude": [],
        "rsync_filter": [], **{f"{name}_commands": [] for name in lists},
    }  # fmt: skip
