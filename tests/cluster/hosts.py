"""Several hosts on one machine: network namespaces joined by a bridge, each with an address, a /tmp/ray and a Ray node of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUBNETS = range(1, 255)
DISK = "/tmp/ray"  # of each host its own, see `Hosts.disk`
INTERFACE = "e0"  # of every host; gloo must be given it, or it takes the loopback
STARTED_WITHIN_S = 180  # a Ray node takes 5 s on an idle machine
RAY_PORT, DASHBOARD_PORT = 6379, 8265  # of their namespaces' own
# When the head believes that a host is gone: after 4 checks without an answer, each waiting 3 s. Ray's own defaults take about 50 s.
NOTICING = {"health_check_period_ms": 500, "health_check_timeout_ms": 3000, "health_check_failure_threshold": 4}


class Hosts:
    """The hosts of one run; make them with `hosts`. Nothing of them is visible outside their namespaces."""

    def __init__(self, subnet: int, folder: Path, environment: Mapping[str, str]) -> None:
        self._subnet = subnet
        self.folder = folder
        self._names: list[str] = []
        self._scripts: dict[int, subprocess.Popen[str]] = {}
        self._servers: list[subprocess.Popen[str]] = []
        self._gcs: list[list[str]] = []  # environment and command of the last one that was killed
        self._environment = os.environ | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "PYTHONPATH"):
            self._environment.pop(name, None)
        self._environment |= environment

    @property
    def token_file(self) -> Path:
        """Of the cluster's token, as the scripts of cluster/ read it."""
        file = self.folder / "token"
        file.write_text(self._environment["RAY_AUTH_TOKEN"])
        return file

    def address(self, host: int) -> str:
        return f"10.77.{self._subnet}.{host + 1}"

    def start_head(self, *more: str, with_dashboard: bool = True, environment: Mapping[str, str] | None = None) -> None:
        """Host 0, with the dashboard and the job server, which are ten processes; nothing scales this cluster, so no monitor runs.

        more: options of `ray start`. environment: of this node alone.
        """
        address = [f"--dashboard-host={self.address(0)}", f"--dashboard-port={DASHBOARD_PORT}"] if with_dashboard else []
        dashboard = [f"--include-dashboard={str(with_dashboard).lower()}", *address]
        options = ["--head", "--no-monitor", f"--port={RAY_PORT}", *dashboard, f"--system-config={json.dumps(NOTICING)}", *more]
        self._start_node(0, *options, environment=environment)

    def join(self, host: int, *, token: str | None = None, monotonic_s: int = 0) -> None:
        """A host joins the cluster, for the first time or again.

        token: another one than that of the cluster. monotonic_s: by which its monotonic clock is ahead (Linux has no namespace for the
        time of day).
        """
        self._start_node(host, f"--address={self.address(0)}:{RAY_PORT}", token=token, monotonic_s=monotonic_s)

    def start_script(self, host: int, script: str, **environment: str) -> None:
        """Run a script of cluster/ on a new host until Ray is up there; what it keeps lies on that host's own disk, its home too."""
        self.wire(host)
        given = {"CPUS": "1", "GPUS": "0", "OBJECT_STORE_BYTES": str(100 * 2**20), "HOME": DISK, "SENTDIST_TEMP": DISK}
        given |= {"HEAD_IP": self.address(0), "NODE_IP": self.address(host)} | environment
        log = self.folder / f"{self._name(host)}.script"
        with log.open("w") as out:
            command = ["env", *(f"{name}={value}" for name, value in given.items()), "bash", f"cluster/{script}"]
            process = self.start(host, *command, stdout=out, stderr=out)
        self._scripts[host] = process
        deadline = time.monotonic() + STARTED_WITHIN_S
        while "Ray runtime started" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"host {host} did not start: {log.read_text()[-3000:]}\n{self.logs()}")
            time.sleep(0.2)

    def end_script(self, host: int) -> None:
        """SIGTERM to the script of a host, as from systemd when the machine shuts down."""
        self._scripts[host].terminate()

    def disk(self, host: int) -> Path:
        """The folder that a host sees as `DISK`."""
        return self.folder / self._name(host)

    def run(self, host: int, *command: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """A command on a host, to its end."""
        return self._run(host, list(command), timeout_s=timeout_s)

    def cut(self, host: int) -> None:
        """Pull the cable of a host: nothing reaches it any more, and it does not know why."""
        _ip("-n", self._hub, "link", "set", f"p{host}", "down")

    def plug_in(self, host: int) -> None:
        """Put the cable that was pulled back."""
        _ip("-n", self._hub, "link", "set", f"p{host}", "up")

    def start(self, host: int, *command: str, **options: Any) -> subprocess.Popen[str]:
        """A command on a host; its process itself, not a shell around it. The options are those of `subprocess.Popen`."""
        return subprocess.Popen(self._inside(host, command), cwd=ROOT, env=self._environment, text=True, start_new_session=True, **options)

    def start_server(self, host: int, *command: str) -> None:
        """A command that ends with the hosts."""
        with (self.folder / f"{self._name(host)}.server").open("a") as log:
            self._servers.append(self.start(host, *command, stdout=log, stderr=log))

    def pids(self, host: int) -> list[int]:
        """The ids of all processes on a host."""
        return [int(pid) for pid in _ip("netns", "pids", self._name(host)).split()]

    def kill_node(self, host: int) -> None:
        """Take the Ray node of a host away; what runs on it goes with it."""
        for pid in self._running(host, "raylet/raylet"):
            with _gone():
                os.kill(pid, signal.SIGKILL)

    def kill(self, host: int, *, but: Container[int] = ()) -> None:
        """Take all processes of a host away at once, as a loss of power does, but those of these ids."""
        for pid in self.pids(host):
            if pid not in but:
                with _gone():
                    os.kill(pid, signal.SIGKILL)

    def empty_disk(self, host: int) -> None:
        """As that of a new machine, or of a new pod."""
        for path in self.disk(host).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def kill_gcs(self) -> bool:
        """Take the process away in which the head keeps its tables, and only that; False if there is none."""
        found = self._running(0, "gcs/gcs_server")
        for pid in found:
            self._gcs = [_variables(pid, "environ"), _variables(pid, "cmdline")]
            with _gone():
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    def start_gcs_again(self) -> None:
        """As it was started before `kill_gcs`."""
        environment, command = self._gcs
        self.start_server(0, "env", *environment, *command)

    def submit(self, *command: str, environment: dict[str, str] | None = None, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        """`ray job submit --working-dir . -- COMMAND` on host 0, to its end."""
        runtime = json.dumps({"env_vars": {"GLOO_SOCKET_IFNAME": INTERFACE} | (environment or {})})
        address = f"--address=http://{self.address(0)}:{DASHBOARD_PORT}"
        submit = ["ray", "job", "submit", address, "--working-dir", ".", "--runtime-env-json", runtime]
        return self._run(0, [*submit, "--", *command], timeout_s=timeout_s)

    def play(self, job: str, store: str, *, num_hosts: int) -> str:
        """A job of host_jobs.py on host 0; what it printed."""
        done = self.submit("python", "-m", "tests.cluster.host_jobs", job, store, str(num_hosts))
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr + self.logs())
        return done.stdout

    def logs(self) -> str:
        """The ends of the log files that say why something did not come up."""
        files = [path for name in ("raylet.err", "gcs_server.err", "dashboard.log", "job-driver*.log") for path in self.folder.rglob(name)]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-1500:]}" for path in files if not path.is_symlink())

    def _running(self, host: int, program: str) -> list[int]:
        """The ids of the processes of a host whose program has this in its path."""
        found = []
        for pid in self.pids(host):
            with suppress(OSError):  # it went away by itself meanwhile
                if program in _variables(pid, "cmdline")[0]:
                    found.append(pid)
        return found

    @property
    def _hub(self) -> str:
        return f"sd{self._subnet}hub"

    def _name(self, host: int) -> str:
        return f"sd{self._subnet}h{host}"

    def given(self, name: str, value: str) -> None:
        """An environment variable for all that is run from now on."""
        self._environment[name] = value

    def wire(self, host: int) -> str:
        """A host without a Ray node; its address."""
        name = self._name(host)
        _ip("netns", "add", name)
        self._names.append(name)
        self.disk(host).mkdir(exist_ok=True)
        _ip("link", "add", INTERFACE, "netns", name, "type", "veth", "peer", "name", f"p{host}", "netns", self._hub)
        _ip("-n", self._hub, "link", "set", f"p{host}", "master", "bridge")
        _ip("-n", self._hub, "link", "set", f"p{host}", "up")
        _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", INTERFACE)
        for interface in ("lo", INTERFACE):
            _ip("-n", name, "link", "set", interface, "up")
        return self.address(host)

    def _start_node(
        self, host: int, *options: str, token: str | None = None, monotonic_s: int = 0, environment: Mapping[str, str] | None = None
    ) -> None:
        if self._name(host) not in self._names:
            self.wire(host)
        sizes = ["--num-cpus=1", "--num-gpus=0", f"--object-store-memory={100 * 2**20}"]
        clock = ["unshare", "--time", "--fork", "--monotonic", str(monotonic_s)] if monotonic_s else []
        command = [*clock, "ray", "start", *options, f"--node-ip-address={self.address(host)}", *sizes, "--disable-usage-stats"]
        given = dict(environment or {}) | ({"RAY_AUTH_TOKEN": token} if token else {})
        done = self._run(host, command, timeout_s=STARTED_WITHIN_S, environment=given)
        if done.returncode:
            raise RuntimeError(f"host {host} did not start: {done.stdout[-1500:]}{done.stderr[-1500:]}\n{self.logs()}")

    def _run(
        self, host: int, command: list[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = self._environment | dict(environment or {})
        output = self.folder / f"{self._name(host)}.{time.monotonic_ns()}"  # a file: what ray leaves running would keep a pipe open
        with output.open("w") as out, output.with_suffix(".err").open("w") as err:
            done = subprocess.run(
                self._inside(host, command), cwd=ROOT, env=environment, stdout=out, stderr=err, timeout=timeout_s, check=False
            )
        return subprocess.CompletedProcess(command, done.returncode, output.read_text(), output.with_suffix(".err").read_text())

    def _inside(self, host: int, command: Iterable[str]) -> list[str]:
        # `ip netns exec` gives the command a mount namespace of its own, so each host has a /tmp/ray that the others do not see.
        own_disk = f'mount --bind {self.disk(host)} {DISK} && exec "$@"'
        return ["ip", "netns", "exec", self._name(host), "sh", "-c", own_disk, "sh", *command]

    def _unplug(self) -> None:
        """End what runs in the namespaces, by its id, and take them away."""
        for name in self._names:
            for pid in _ip("netns", "pids", name).split():
                with _gone():
                    os.kill(int(pid), signal.SIGKILL)
        for process in [*self._scripts.values(), *self._servers]:
            process.wait(timeout=STARTED_WITHIN_S)
        for name in [*self._names, self._hub]:
            _ip("netns", "del", name)


def why_not() -> str | None:
    """The reason for which this machine cannot have hosts; None if it can."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "hosts are network namespaces: they need Linux and `ip` (iproute2)"
    if os.geteuid() != 0:
        return "hosts are network namespaces: they need root"
    probe = f"sdprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"hosts are network namespaces, which this machine refuses: {made.stderr.strip()}"
    _ip("netns", "del", probe)
    return None


@contextmanager
def hosts(**environment: str) -> Iterator[Hosts]:
    """Hosts on a subnet that no other run on this machine has; all that runs on them has these environment variables, too."""
    Path(DISK).mkdir(exist_ok=True)  # where each host's own one is mounted
    folder = Path(tempfile.mkdtemp(prefix="sd-hosts-", dir="/tmp"))
    made = Hosts(_claim_subnet(), folder, environment)
    try:
        yield made
    finally:
        made._unplug()
        shutil.rmtree(folder, ignore_errors=True)


def _claim_subnet() -> int:
    """Making the namespace of the hub is the claim: it fails where somebody has it."""
    for subnet in SUBNETS:
        hub = f"sd{subnet}hub"
        if not subprocess.run(["ip", "netns", "add", hub], capture_output=True, check=False).returncode:
            _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
            _ip("-n", hub, "link", "set", "bridge", "up")
            return subnet
    raise RuntimeError("no subnet 10.77.x.0/24 is free: `ip netns list` shows who has them")


def _variables(pid: int, file: str) -> list[str]:
    """The strings in a file of a process such as `cmdline`."""
    return (Path("/proc") / str(pid) / file).read_bytes().decode(errors="surrogateescape").rstrip("\0").split("\0")


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
