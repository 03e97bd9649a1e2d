"""The README's commands as a new user types them: a fresh clone, the two scripts, the demo twice.
Needs a package index and about 15 minutes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentdist.services.processes import free_port

pytestmark = [pytest.mark.journey, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
DEMO_SECONDS = 8 * 60
AGAIN_SECONDS = 60  # Ray's own start-up of a job, and nothing built


class Newcomer:
    """Somebody with a fresh clone and a shell."""

    def __init__(self, home: Path) -> None:
        self.clone = home / "sentdist"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.clone)], check=True)
        ray, dashboard, mlflow = (str(free_port()) for _ in range(3))
        ours = ("SENTDIST_", "RAY_", "MLFLOW_", "VIRTUAL_ENV", "PYTHONPATH")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.environment |= {"SENTDIST_RAY_PORT": ray, "SENTDIST_DASHBOARD_PORT": dashboard, "SENTDIST_MLFLOW_PORT": mlflow}

    def types(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], cwd=self.clone, env=self.environment | environment, capture_output=True, text=True, timeout=3000
        )


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    person = Newcomer(tmp_path_factory.mktemp("journey"))
    yield person
    person.types("bash infra/stop.sh")


@pytest.fixture(scope="module")
def installed(newcomer: Newcomer) -> Newcomer:
    done = newcomer.types("bash cluster/laptop.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    return newcomer


@pytest.fixture(scope="module")
def first_run(installed: Newcomer) -> tuple[str, float]:
    started = time.monotonic()
    done = installed.types("bash infra/quickstart.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, time.monotonic() - started


def test_the_demo_ends_with_a_table_and_the_addresses(first_run: tuple[str, float]) -> None:
    output, seconds = first_run
    assert seconds < DEMO_SECONDS
    assert re.search(r"RCL \(phis=\{0\.01, 0\.02\}\)\s+2\s+\d+\.\d\d ± ", output)
    for word in ("artifacts", "MLflow", "Ray dashboard", "bash infra/stop.sh", "report.html"):
        assert word in output


def test_run_again_it_builds_nothing(first_run: tuple[str, float], installed: Newcomer) -> None:
    started = time.monotonic()
    done = installed.types("bash infra/quickstart.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing to build." in done.stdout
    assert "is up already" in done.stdout
    assert time.monotonic() - started < AGAIN_SECONDS


def test_the_servers_listen_on_loopback_only(installed: Newcomer) -> None:
    leaders = [json.loads((installed.clone / ".sentdist" / f"{name}.json").read_text())["pid"] for name in ("ray", "mlflow")]
    pids = installed.types(f"ps -o pid= -g {leaders[0]},{leaders[1]}").stdout.split()
    listening = installed.types("ss -ltnpH").stdout.splitlines()
    ours = [line.split()[3] for line in listening if any(f"pid={pid}," in line for pid in pids)]
    assert ours
    assert all(re.match(r"(127\.0\.0\.1|\[::ffff:127\.0\.0\.1\]|\[::1\]):", address) for address in ours), ours


def test_the_shell_can_use_the_servers(first_run: tuple[str, float], installed: Newcomer) -> None:
    done = installed.types("source .sentdist/env && sentdist doctor && sentdist report demo && sentdist list artifacts && ray job list")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCEEDED" in done.stdout


def test_ports_in_use_are_reported_in_one_sentence(installed: Newcomer) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = installed.types("bash infra/stop.sh >/dev/null; bash infra/quickstart.sh", SENTDIST_DASHBOARD_PORT=port)
    assert done.returncode == 1
    assert re.search(rf"port {port}, wanted by Ray's dashboard: found it in use by .* SENTDIST_DASHBOARD_PORT=\d+ sentdist up", done.stderr)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [({"PYTHON": "/nonexistent/python"}, "no usable Python was found"), ({"CXX": "", "PATH": "{venv}:{tools}"}, "no C++ compiler")],
)
def test_what_is_missing_is_reported_in_one_sentence(
    environment: dict[str, str], sentence: str, installed: Newcomer, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "cksum", "cut", "dirname", "env", "grep", "head", "id", "mkdir", "ps", "python3", "sed", "tr", "uname"):
        found = installed.types(f"command -v {name}").stdout.strip()
        (tools / name).symlink_to(found)
    given = {name: value.format(venv=installed.clone / ".venv" / "bin", tools=tools) for name, value in environment.items()}
    command = "bash infra/quickstart.sh"
    if "PYTHON" in environment:
        command = f"git clone -q . {tmp_path / 'bare'} && cd {tmp_path / 'bare'} && {command}"
    done = installed.types(command, **given)
    assert done.returncode == 1
    assert sentence in done.stderr


def test_no_network_is_reported_in_one_sentence(installed: Newcomer, tmp_path: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1"}
    done = installed.types(f"git clone -q . {tmp_path / 'bare'} && cd {tmp_path / 'bare'} && bash infra/quickstart.sh", **nowhere)
    assert done.returncode == 1
    assert "no package index could be reached" in done.stderr
