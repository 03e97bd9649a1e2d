"""What a soak lives in: two hosts with a CPU each, an MLflow server, a disk for the stores, a recipe for each variant."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sentdist.recipe.stage import Json
from tests.cluster.hosts import INTERFACE, RAY_PORT, ROOT, Hosts, hosts
from tests.cluster.redis_host import PATIENT_S as FINDS_THE_HEAD_WITHIN_S
from tests.cluster.redis_host import Redis, start_redis
from tests.faults.disk import Disk
from tests.faults.processes import Process, look_at
from tests.support.tiny_data import write_data
from tests.support.waiting import wait_for

MLFLOW_PORT = 5000
RUNTIMES: dict[str, dict[str, Json]] = {
    "torch-1": {"engine": "torch", "workers": 1},
    "deepspeed-1": {"engine": "deepspeed", "workers": 1},
    "torch-2": {"engine": "torch", "workers": 2},
    "deepspeed-2": {"engine": "deepspeed", "zero_stage": 2, "workers": 2},
}
NUM_HOSTS = 2
PATIENT_S = 300.0  # for what takes seconds on an idle machine
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


@dataclass(frozen=True, kw_only=True)
class LookedAtLater:
    """A round that is looked at once more at `due`: then the board has given up its killed driver, for which it reads the store."""

    due: float
    name: str
    store: Path
    was_rebuilt: bool


class Environment:
    """Everything that outlives a round; make it with `running_environment`."""

    def __init__(self, folder: Path, hosts: Hosts, disk: Disk, redis: Redis | None = None) -> None:
        from tests.support.tiny_encoders import tiny_encoder  # torch takes seconds, and the tests of decisions need none of it

        self.folder = folder
        self.hosts = hosts
        self.disk = disk
        self.data = write_data(folder / "data", num_rows=480)
        self.scratch = folder / "tmp"
        self.mlflow = f"http://{hosts.address(0)}:{MLFLOW_PORT}"
        self.mlflow_db = folder / "mlflow.db"
        self._redis = redis
        self._encoder = tiny_encoder(folder / "encoder", "bert")
        self.later: list[LookedAtLater] = []
        self._server: subprocess.Popen[str] | None = None
        self._inspector: subprocess.Popen[str] | None = None

    def recipe(self, name: str, variant: str) -> Path:
        """A recipe of that name: 10 stages and two overlaps, dropout 0.1,
        trainings of a second or two with a checkpoint at each dev score."""
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(_recipe(name, self._encoder, RUNTIMES[variant])))
        return path

    def sentdist(self, *arguments: str, log: Path, tracking: bool = True, host: int = 0) -> subprocess.Popen[str]:
        """`sentdist ARGUMENTS` on a host, usually the head."""
        settings = [f"RAY_ADDRESS={self.hosts.address(0)}:{RAY_PORT}", "PYTHONUNBUFFERED=1"]
        settings += [f"MLFLOW_TRACKING_URI={self.mlflow}"] * tracking
        with log.open("ab") as errors:
            return self.hosts.start(
                host, "env", *settings, sys.executable, "-m", "sentdist", *arguments, stdout=subprocess.PIPE, stderr=errors
            )

    def start_cluster(self) -> None:
        self._start_head()
        self.hosts.wire(1)
        wait_for(lambda: self._has_all_hosts(0), what=f"{NUM_HOSTS} nodes", seconds=PATIENT_S)

    def _start_head(self) -> None:
        """With a dashboard: Ray Train asks it whether its controllers live."""
        if self._redis is None:
            self.hosts.start_head()
        else:
            self.hosts.start_head(*self._redis.options, environment=self._redis.environment)

    def start_mlflow(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", self.hosts.address(0), "--port", str(MLFLOW_PORT), "--workers", "1"]
        command += ["--allowed-hosts", "*", "--backend-store-uri", f"sqlite:///{self.mlflow_db}"]
        command += ["--artifacts-destination", str(self.folder / "mlflow-artifacts")]
        with (self.folder / "mlflow.log").open("ab") as log:
            self._server = self.hosts.start(0, "env", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false", *command, stdout=log, stderr=log)

    def signal_mlflow(self, number: signal.Signals) -> None:
        """To the server and its workers, which are one process group."""
        assert self._server is not None
        os.killpg(self._server.pid, number)
        if number == signal.SIGKILL:
            self._server.wait()

    def processes(self, *whats: str) -> list[Process]:
        """The processes on all hosts that do one of these things (see processes.py); all if none is named."""
        found = [process for host in range(NUM_HOSTS) for process in look_at(self.hosts.pids(host), host)]
        return [process for process in found if not whats or process.what in whats]

    def lose_host(self) -> None:
        """Host 1 loses its power."""
        self.hosts.kill(1)

    def lose_head(self) -> None:
        """Host 0 loses its power; the MLflow server stands elsewhere where a head may be lost, so it stays."""
        servers = {pid for pid in self.hosts.pids(0) if self._server is not None and _group(pid) == self._server.pid}
        self.hosts.kill(0, but=servers)
        if self._inspector is not None:
            _part(self._inspector)
            self._inspector = None

    def ask(self, question: str, *arguments: Any) -> Any:
        """An answer of the inspector (see inspector.py), which is started if it is not there."""
        if self._inspector is None or self._inspector.poll() is not None:
            with (self.folder / "inspector.log").open("ab") as log:
                command = ["env", f"RAY_ADDRESS={self.hosts.address(0)}:{RAY_PORT}", sys.executable, "-m", "tests.faults.inspector"]
                self._inspector = self.hosts.start(0, *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        assert self._inspector.stdin is not None and self._inspector.stdout is not None
        self._inspector.stdin.write(json.dumps([question, *arguments]) + "\n")
        self._inspector.stdin.flush()
        reply = json.loads(self._inspector.stdout.readline() or '{"error": "the inspector ended, see inspector.log"}')
        if "error" in reply:
            raise RuntimeError(f"{question}: {reply['error']}")
        return reply["value"]

    def make_whole(self, *, monotonic_s: int = 0) -> None:
        """What a fault took comes back: a host (its monotonic clock ahead by so many seconds), the server, the disk."""
        self.disk.answer_again()
        self.disk.make_writable()
        self.disk.free()
        self.hosts.plug_in(1)
        self._bring_head_back()
        wait_for(lambda: self._has_all_hosts(monotonic_s), what=f"{NUM_HOSTS} nodes", seconds=PATIENT_S)
        if self._server is None or self._server.poll() is not None:
            self.start_mlflow()
        self.signal_mlflow(signal.SIGCONT)
        wait_for(lambda: bool(self.ask("answers", f"{self.mlflow}/health")), what="the MLflow server", seconds=PATIENT_S)

    def _bring_head_back(self) -> None:
        there = {process.what for process in self.processes("raylet", "GCS") if process.host == 0}
        if there == {"raylet"}:
            self.hosts.start_gcs_again()
        elif "raylet" not in there:
            _tried(self._replace_head)

    def _replace_head(self) -> None:
        self.lose_head()  # what its raylet left
        self.hosts.empty_disk(0)  # another pod takes its place
        self._start_head()

    def _join(self, monotonic_s: int) -> None:
        self.lose_host()  # what its raylet left
        self.hosts.join(1, monotonic_s=monotonic_s)

    def _has_all_hosts(self, monotonic_s: int) -> bool:
        """Whether the cluster counts all hosts; one whose raylet has ended (also because the head had given it up) joins first."""
        if not any(process.host == 1 for process in self.processes("raylet")):
            _tried(lambda: self._join(monotonic_s))
        return bool(self.ask("census")["num_nodes"] == NUM_HOSTS)

    def close(self) -> None:
        """End the processes that are nobody's children on the hosts."""
        for process in (self._inspector, self._server):
            if process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                _part(process)

    def keep_logs(self, folder: Path) -> None:
        """Copy what the cluster wrote, of each file the end."""
        folder.mkdir(parents=True, exist_ok=True)
        logs = [path for pattern in ("*.err", "*.out", "*.log") for path in self.hosts.folder.rglob(pattern)]
        for path in [*logs, *self.folder.glob("*.log")]:
            with suppress(OSError):
                if not path.is_symlink() and "session_latest" not in path.parts:
                    (folder / path.name).write_bytes(path.read_bytes()[-200_000:])


def _tried(start: Callable[[], None]) -> None:
    """Start a node, in at most three tries: Ray gives its raylet 30 s, which a busy machine may exceed."""
    for is_last in (False, False, True):
        with nullcontext() if is_last else suppress(RuntimeError):
            start()
            return


@contextmanager
def running_environment(logs: Path, *, with_redis: bool = False) -> Iterator[Environment]:
    """An environment with its cluster and its server running; if it does not come up or breaks, its logs are kept there.

    with_redis: the head's tables lie in a Redis on a host of its own, so that the head may be lost.
    """
    made = Path(tempfile.mkdtemp(prefix="sd-soak-", dir="/tmp"))
    scratch = made / "tmp"
    scratch.mkdir()
    disk = Disk(made)
    # Ray's sockets stay below its usual folder: their paths may have 107 letters.
    settings = QUIET | {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch), "RAY_TMPDIR": "/tmp", "GLOO_SOCKET_IFNAME": INTERFACE}
    settings["RAY_worker_niceness"] = "0"  # else workers get what everything else on the machine leaves
    if with_redis:
        settings["RAY_gcs_rpc_server_reconnect_timeout_s"] = str(FINDS_THE_HEAD_WITHIN_S)
    try:
        with disk.mounted(), hosts(**settings) as some:
            environment = Environment(made, some, disk, start_redis(some) if with_redis else None)
            try:
                environment.start_cluster()
                environment.make_whole()
                yield environment
            except BaseException:
                environment.keep_logs(logs / "broken")
                raise
            finally:
                environment.close()
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _part(process: subprocess.Popen[str]) -> None:
    """From one that was killed."""
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _group(pid: int) -> int | None:
    """The process group of a process; None if it went away by itself meanwhile."""
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _recipe(name: str, encoder: Path, runtime: dict[str, Json]) -> dict[str, Json]:
    return {
        "name": name,
        "encoder": {"checkpoint": str(encoder)},
        "corpus": {"source": "nli/triplets"},
        "training": {"batch_size": 8, "learning_rate": 1e-3, "max_length": 20, "epochs": 2},
        "selection": {"task": "stsb-dev", "every_fraction": 0.5},
        "evaluation": {"tasks": ["stsb"]},
        "methods": {
            "base": {},
            "fine_tuned": {"objective": {"name": "info_nce", "temperature": 0.05}},
            "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "select": False, "reported": False},
            "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02]},
        },
        "baseline": "fine_tuned",
        "runtime": {"checkpoint_every_s": 1.0} | runtime,
    }
