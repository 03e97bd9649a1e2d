"""The team's MLflow server: the very command of compose.yaml as a process, with SQLite."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from sentdist.services.processes import free_port
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SERVICE = yaml.safe_load((ROOT / "infra" / "mlflow" / "compose.yaml").read_text())["services"]["mlflow"]
GIVEN = {"POSTGRES_PASSWORD": "p", "MLFLOW_AUTH_ADMIN_PASSWORD": "a long password", "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32}


def test_the_example_of_settings_asks_for_what_must_be_set_and_keeps_the_other_defaults() -> None:
    """It is copied as it stands and filled in: a line that set a name to something else would be what everybody has."""
    compose = (ROOT / "infra" / "mlflow" / "compose.yaml").read_text()
    example = (ROOT / "infra" / "mlflow" / "env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in example if line and not line.startswith("#"))
    spoken_of = {line.removeprefix("# ").split("=")[0] for line in example if "=" in line}
    assert {name for name, value in given.items() if not value} == set(re.findall(r"\$\{(\w+):\?", compose))
    assert {name: value for name, value in given.items() if value} == {"MLFLOW_ARTIFACTS": "/artifacts"}
    as_given = {name for name, value in SERVICE["environment"].items() if value is None}
    assert spoken_of == {*re.findall(r"\$\{(\w+)", compose), *as_given}


def _filled(text: str, values: dict[str, str]) -> str:
    """As compose fills in ${NAME}, ${NAME:-default} and ${NAME:?must be set}."""
    return re.sub(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}", lambda found: values.get(found[1]) or found[2] or "", text)


@contextmanager
def _serving(folder: Path) -> Iterator[int]:
    """The server on a free port; accounts, and what has no place of its own, lie in `folder`, as on the volumes."""
    port = free_port()
    folder.mkdir(exist_ok=True)
    settings = (ROOT / "infra" / "mlflow" / "basic_auth.ini").read_text()
    (folder / "basic_auth.ini").write_text(re.sub(r"sqlite:///\S+", f"sqlite:///{folder}/users.db", settings))
    given = os.environ | {name: _filled(str(value), GIVEN) for name, value in SERVICE["environment"].items() if value is not None}
    given |= {"MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder}/mlflow.db", "MLFLOW_AUTH_CONFIG_PATH": str(folder / "basic_auth.ini")}
    words = _filled(SERVICE["command"], {"MLFLOW_ARTIFACTS": str(folder / "artifacts")}).split()
    words = [str(port) if word == "5000" else word for word in words]
    command = [sys.executable, "-m", *words, "--workers", "1"]
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(command, cwd=folder, env=given, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: _status(port, "/health") == 200, what=f"the server, see {folder / 'log'}", seconds=240)
        yield port
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _status(port: int, path: str, *, host: str | None = None, user: str | None = None) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if host is not None:
        request.add_header("Host", host)
    if user is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{GIVEN['MLFLOW_AUTH_ADMIN_PASSWORD']}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_the_server_starts_wants_a_password_and_answers_under_its_addresses(tmp_path: Path) -> None:
    page = "/ajax-api/2.0/mlflow/experiments/get-by-name?experiment_name=Default"
    with _serving(tmp_path / "team") as port:
        assert _status(port, page) == 401
        named = ("localhost", "mlflow.team.svc.cluster.local", "10.1.2.3", "192.168.0.9", "172.20.0.3")
        found = {host: _status(port, page, host=f"{host}:5000", user="admin") for host in named}
        assert found == dict.fromkeys(named, 200)
        for stranger in ("evil.example", "mlflow.evil.example", "172.200.0.3"):
            assert _status(port, page, host=f"{stranger}:5000", user="admin") == 403, stranger
    assert (tmp_path / "team" / "users.db").exists(), "accounts outlive the container"
