"""What the scripts and files of cluster/ give to Ray: addresses, devices, secrets, time to leave. Programs are stood in for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
TOOLS = {
    "ray": 'printf "ray %s\\n" "$*"; env | grep -E "^(RAY|AUTOSCALER|DASHBOARD)" | sort; [ -z "${SENTDIST_ENDED:-}" ] || echo 0 >"$SENTDIST_ENDED"',
    "scontrol": "echo localhost",
    "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
}
HOSTS = {"HEAD_IP": "10.0.0.5", "NODE_IP": "10.0.0.6"}
SLURM = {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "1"}


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sd-", dir="/tmp") as folder:
        yield Path(folder)


def _environment(short: Path, tools: dict[str, str], **given: str) -> dict[str, str]:
    for name, does in tools.items():
        (short / name).write_text(f"#!/bin/bash\n{does}\n")
        (short / name).chmod(0o755)
    ours = ("SENTDIST_", "RAY_", "MLFLOW_", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{short}:{Path(sys.executable).parent}:{inherited['PATH']}"
    return inherited | {"PATH": path, "HOME": str(short), "SENTDIST_TEMP": str(short), "PYTHONPATH": str(ROOT)} | given


def _given_to_ray(script: str, short: Path, **given: str) -> tuple[list[str], dict[str, str]]:
    """The words that `ray` gets from a script, and its environment."""
    done = subprocess.run(
        ["bash", f"cluster/{script}", "recipe.yaml"],
        cwd=ROOT,
        env=_environment(short, TOOLS, **given),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (words,) = [line.split() for line in done.stdout.splitlines() if line.startswith("ray ")]
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if re.match(r"(RAY|AUTOSCALER|DASHBOARD)\w*=", line))
    return words, found


def _option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_a_head_keeps_its_dashboard_on_loopback_and_makes_a_token_for_its_owner_alone(short: Path) -> None:
    old = os.umask(0o022)
    try:
        words, found = _given_to_ray("one_host.sh", short, RAY_ADDRESS="10.9.9.9:6379", GPUS="8", CPUS="64", **HOSTS)
    finally:
        os.umask(old)
    assert (_option(words, "--node-ip-address"), _option(words, "--dashboard-host")) == ("10.0.0.5", "127.0.0.1")
    assert (_option(words, "--num-cpus"), _option(words, "--num-gpus")) == ("64", "8")
    assert found["RAY_AUTH_MODE"] == "token" and "RAY_ADDRESS" not in found, "of another cluster"
    text = (ROOT / "cluster" / "one_host.sh").read_text()
    assert "(umask 077 && python3" in text, "between its making and its `chmod` others could read it"


def test_another_host_joins_under_its_own_address_with_its_devices(short: Path) -> None:
    (short / ".sentdist_ray_token").write_text("secret")
    words, found = _given_to_ray("several_hosts.sh", short, RAY_ADDRESS="10.9.9.9:6379", GPUS="8", **HOSTS)
    assert (_option(words, "--address"), _option(words, "--node-ip-address")) == ("10.0.0.5:6379", "10.0.0.6")
    assert _option(words, "--num-gpus") == "8" and "RAY_ADDRESS" not in found


@pytest.mark.parametrize("script", ["one_host.sh", "several_hosts.sh", "slurm.sh"])
@pytest.mark.parametrize("metrics", ["0", "1"])
def test_no_port_for_metrics_is_opened_unasked(script: str, metrics: str, short: Path) -> None:
    (short / ".sentdist_ray_token").write_text("secret")
    _, found = _given_to_ray(script, short, METRICS=metrics, **(HOSTS if script != "slurm.sh" else SLURM))
    closed = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1", "DASHBOARD_METRIC_PORT": "-1"}
    assert {name: value for name, value in found.items() if name in closed} == (closed if metrics == "0" else {})


def test_a_slurm_job_has_its_devices_time_to_start_and_leaves_no_token(short: Path) -> None:
    words, found = _given_to_ray("slurm.sh", short, SLURM_GPUS_ON_NODE="4", SLURM_CPUS_ON_NODE="32", RAY_ADDRESS="10.9.9.9:6379", **SLURM)
    assert (_option(words, "--num-gpus"), _option(words, "--num-cpus"), _option(words, "--min-nodes")) == ("4", "32", "1")
    assert found["RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT"] == "300" and found["RAY_AUTH_MODE"] == "token"
    assert found["RAY_ADDRESS"] == _option(words, "--address") != "10.9.9.9:6379"
    assert not list(short.glob(".sentdist_token_*"))


def test_slurm_tells_a_job_in_time_and_queues_it_again() -> None:
    """`--within` ends before the signal's time does, and the trainings of every host are notified."""
    text = (ROOT / "cluster" / "slurm.sh").read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert {"requeue", "exclusive", "signal", "ntasks-per-node"} <= options.keys()
    name, seconds = re.fullmatch(r"B:(\w+)@(\d+)", options["signal"]).groups()  # type: ignore[union-attr]
    (within,) = re.findall(r"-m sentdist leave --all --within (\d+)'", text)
    assert f'requeue "$SLURM_JOB_ID"\' {name}' in text and 60 <= int(within) < int(seconds)


def _heeds_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what runs behind an `&` was set not to


def _node(short: Path, number: int) -> tuple[int, list[str]]:
    """A node that is asked to end by a signal: its exit code, and what happened in which order."""
    log = short / "log"
    programs = {
        "node": f'trap "echo ended >>{log}; exit 7" TERM; echo up >>{log}; while :; do sleep 0.05; done',
        "python3": f'echo "$RAY_ADDRESS ${{*: -4}}" >>{log}',
        "sleep": f'[ "$1" = 0.05 ] || echo "slept $1" >>{log}; exec /bin/sleep 0.05',
    }
    script = ". cluster/security.sh; leaves_in_time 10.0.0.5:6379 node"
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env=_environment(short, programs, NOTICE_S="20"), start_new_session=True,
        preexec_fn=_heeds_ctrl_c,
    ) as shell:  # fmt: skip
        try:
            wait_for(log.exists, what="the node")
            os.kill(shell.pid, number)
            code = shell.wait(timeout=20)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    return code, log.read_text().splitlines()[1:]


def test_a_node_that_is_asked_to_end_notifies_the_cluster_and_waits_for_checkpoints(short: Path) -> None:
    code, happened = _node(short, signal.SIGTERM)
    assert code == 7, "as its node does"
    assert happened == ["10.0.0.5:6379 sentdist leave --within 30", "slept 20", "ended"]


def test_ctrl_c_ends_a_node_that_runs_in_the_background(short: Path) -> None:
    assert _node(short, signal.SIGINT) == (7, ["ended"])


def _commands(name: str) -> list[str]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "cluster" / "cloud.yaml").read_text())
    return [line for line in found[name] if "ray start" in line]


def test_machines_of_a_cloud_want_a_token_show_no_dashboard_and_are_added_by_the_head() -> None:
    (head,), (worker,) = _commands("head_start_ray_commands"), _commands("worker_start_ray_commands")
    for command in (head, worker):
        assert "RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=~/.sentdist_ray_token ray start " in command
    assert "--dashboard-host 127.0.0.1 " in head and "--autoscaling-config ~/ray_bootstrap_config.yaml" in head
    assert "--address $RAY_HEAD_IP:6379" in worker


@pytest.mark.parametrize("name", ["raycluster.yaml", "rayjob.yaml"])
def test_clusters_of_kuberay_want_a_token_and_give_their_head_no_work(name: str) -> None:
    (made,) = [
        one for one in yaml.safe_load_all((ROOT / "cluster" / "kuberay" / name).read_text()) if one["kind"] in ("RayCluster", "RayJob")
    ]
    spec = made["spec"].get("rayClusterSpec", made["spec"])
    assert spec["authOptions"] == {"mode": "token", "secretName": "sentdist-ray-token"}
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0", "a head that computes is lost with its memory"
    if made["kind"] == "RayJob":
        program, recipe = re.fullmatch(r"python -m rayjobs\.(\w+) (\S+) .*", made["spec"]["entrypoint"]).groups()  # type: ignore[union-attr]
        assert program == "sweep" and "sweep:" in (ROOT / recipe).read_text()
