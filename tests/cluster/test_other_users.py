"""What another user of this machine can do to the servers of `sentdist up`: nothing."""

from __future__ import annotations

import base64
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from sentdist.services.processes import RunningServer, free_port, noted

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SYSTEM_PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable  # one that every user may run
JOB = """
import os
os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "60"  # the first answer of a busy server may take 10 s
from sentdist.tracking.server import connect
print("experiments", [one.name for one in connect(os.environ["MLFLOW_TRACKING_URI"]).search_experiments()])
"""
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")]


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Ray and MLflow as `sentdist up` starts them; state: their `.sentdist`; output: what a job printed."""

    folder: Path
    environment: dict[str, str]
    output: str
    command_lines: str

    @property
    def state(self) -> Path:
        return self.folder / ".sentdist"

    @property
    def mlflow(self) -> str:
        return f"http://127.0.0.1:{self.environment['SENTDIST_MLFLOW_PORT']}"

    @property
    def ray_folder(self) -> Path:
        return Path(self.noted("ray").folder)

    def noted(self, name: str) -> RunningServer:
        running = noted(self.state / f"{name}.json")
        assert running is not None
        return running

    def secret(self, name: str) -> str:
        return (self.state / name).read_text()

    def processes(self) -> list[psutil.Process]:
        return [process for name in ("ray", "mlflow") for process in self.noted(name).processes()]


def _bash(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with (folder / "output").open("w+") as output:  # a file: servers would keep a pipe open
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=output, timeout=400, check=False)
        return subprocess.CompletedProcess(command, done.returncode, (folder / "output").read_text())


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Both servers, found again by a second call as a second quickstart.sh does; the owner has run one job."""
    ours = ("SENTDIST_", "RAY_", "MLFLOW_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {f"SENTDIST_{name}_PORT": str(free_port()) for name in ("RAY", "DASHBOARD", "MLFLOW")}
    environment |= {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{environment['PATH']}", "PYTHONPATH": str(ROOT)}
    folder = Path(tempfile.mkdtemp(prefix="sd-owner-", dir="/tmp"))
    folder.chmod(0o755)  # as a checkout in a shared folder: what protects is .sentdist's own mode
    (folder / "job").mkdir()
    (folder / "job" / "job.py").write_text(JOB)
    command = "python -m sentdist"
    try:
        for reported in ("Starting Ray", "Ray is up already"):
            done = _bash(f"{command} up", folder, environment)
            assert done.returncode == 0 and reported in done.stdout, done.stdout
        output, command_lines = _job(folder, environment)
        started = Servers(folder=folder, environment=environment, output=output, command_lines=command_lines)
        yield started
        processes = started.processes()
        assert "Ray stopped." in _bash(f"{command} down", folder, environment).stdout
        assert not [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    finally:
        _bash(f"{command} down", folder, environment)
        shutil.rmtree(folder)


def _job(folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """Submit a job with what `sentdist submit` passes on; its output, and all command lines that could be read meanwhile."""
    passed_on = 'json.dumps({"env_vars": job_environment(os.environ)})'
    code = f"import json, os; from sentdist.run.jobs import job_environment; print({passed_on})"
    job = "ray job submit --working-dir job --runtime-env .sentdist/job.json -- python job.py"
    seen: set[str] = set()
    with (folder / "job.log").open("w+") as log:
        script = f". .sentdist/env; python -c '{code}' >.sentdist/job.json; {job}"
        process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, stdout=log, stderr=log)
        while process.poll() is None:
            seen.update(" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))
            time.sleep(0.2)
        output = (folder / "job.log").read_text()
    assert process.returncode == 0, output
    return output, "\n".join(seen)


def _as_nobody(code: str, *arguments: str) -> str:
    """Run Python as another user; what it printed, or the error that it met."""
    who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
    done = subprocess.run([SYSTEM_PYTHON, "-c", code, *arguments], **who, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]


REPLACE_PACKAGE = """
import os, shutil, sys
package = sys.argv[1]
os.rename(package, package + ".theirs")
shutil.copytree(package + ".theirs", package)
open(package + "/job.py", "a").write("import os; os.system('id')")
print("replaced")
"""


def _put(url: str, text: str, *, secret: str | None) -> int:
    headers = {"Authorization": f"Basic {base64.b64encode(f'sentdist:{secret}'.encode()).decode()}"} if secret else {}
    request = urllib.request.Request(url, data=text.encode(), method="PUT", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


REPLACE_MODEL = """
import sys, urllib.request
for name, text in (("MLmodel", "flavors: {python_function: {code: code, loader_module: evil}}"), ("code/evil.py", "print()")):
    request = urllib.request.Request(sys.argv[1] + name, data=text.encode(), method="PUT")
    print(urllib.request.urlopen(request, timeout=30).status)
"""
READ = "import sys; [open(path, 'rb').read(1) for path in sys.argv[1:]]; print('read')"
GRPC = (  # a call of each service that a port may have
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.ReporterService/HealthCheck",
    "/ray.rpc.RayletDriver/ClusterInfo",
)


def _without_secret(port: int) -> str:
    """How a port answers somebody who only knows its number: an HTTP status, or the status of the first gRPC call that it knows."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return str(error.code)
    except (OSError, http.client.HTTPException):
        pass  # no HTTP
    reported = "no answer"
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for call in GRPC:
            try:
                channel.unary_unary(call)(b"", timeout=10)
                return f"{call}: OK"
            except grpc.RpcError as error:
                reported = f"{error.code().name}"
                if reported != "UNIMPLEMENTED":
                    return reported
    return reported


def test_nobody_cannot_replace_the_code_of_a_job(servers: Servers) -> None:
    packages = sorted(servers.ray_folder.glob("session_2*/runtime_resources/working_dir_files/_ray_pkg_*/job.py"))
    assert packages
    reported = _as_nobody(REPLACE_PACKAGE, str(packages[0].parent))
    assert "PermissionError" in reported
    assert packages[0].read_text() == JOB


def test_nobody_cannot_replace_a_registered_model(servers: Servers) -> None:
    model = f"{servers.mlflow}/api/2.0/mlflow-artifacts/artifacts/0/models/m-1/artifacts/"
    assert _put(f"{model}MLmodel", "flavors: {}", secret=servers.secret("mlflow_password")) == 200
    assert _put(f"{model}MLmodel", "flavors: {}", secret="a guess") == 401
    assert "401" in _as_nobody(REPLACE_MODEL, model)
    files = [path for path in (servers.state / "mlflow-artifacts").rglob("*") if path.is_file()]
    assert [(path.name, path.read_text()) for path in files] == [("MLmodel", "flavors: {}")]


def test_nobody_cannot_read_what_the_servers_keep(servers: Servers) -> None:
    for name in ("ray_token", "mlflow_password", "mlflow_secret_key", "mlflow_users.db", "mlflow.db", "logs/ray.log", "env"):
        assert (servers.state / name).is_file()
        assert "PermissionError" in _as_nobody(READ, str(servers.state / name))
    for process in servers.processes():
        reported = _as_nobody(READ, f"/proc/{process.pid}/environ")
        assert "PermissionError" in reported or "FileNotFoundError" in reported, (process, reported)


def test_no_secret_stands_in_a_command_line_or_a_log(servers: Servers) -> None:
    assert "job submit" in servers.command_lines
    logs = [path for folder in (servers.state / "logs", servers.ray_folder) for path in folder.rglob("*") if path.is_file()]
    assert len(logs) > 10
    for name in ("ray_token", "mlflow_password", "mlflow_secret_key"):
        secret = servers.secret(name)
        assert len(secret) >= 32
        assert secret not in servers.command_lines
        assert [path for path in logs if secret.encode() in path.read_bytes()] == []


def test_every_port_listens_on_loopback_and_wants_a_secret(servers: Servers) -> None:
    listening = {
        one.laddr.port: process.name()
        for process in servers.processes()
        for one in process.net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN and re.fullmatch(r"(::ffff:)?127\.0\.0\.1|::1", one.laddr.ip)
    }
    everything = {
        one.laddr.port for process in servers.processes() for one in process.net_connections() if one.status == psutil.CONN_LISTEN
    }
    assert set(listening) == everything
    assert len(listening) >= 6
    answers = {f"{name}:{port}": _without_secret(port) for port, name in listening.items()}
    assert not {who: reported for who, reported in answers.items() if reported not in ("401", "UNAUTHENTICATED")}


def test_the_owners_shell_and_job_are_let_in_everywhere(servers: Servers) -> None:
    assert "experiments ['Default']" in servers.output
    done = _bash(f". {servers.state}/env; cd {ROOT}; python -m sentdist doctor", servers.folder, servers.environment)
    for server in ("Ray", "Ray's dashboard", "MLflow"):
        assert re.search(rf"^ok +{server} +.*answers at", done.stdout, re.MULTILINE), done.stdout
