"""`sentdist up` and `down` without Ray and MLflow: secrets, ports, folders, environment, which processes are ended."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from sentdist.errors import ServerError
from sentdist.services import processes, servers
from sentdist.services.processes import MARK, Reply, RunningServer, end, get, launch, noted
from sentdist.services.servers import Hardware, down, up
from sentdist.services.state import State, make_secret, private_folder, state_of
from tests.support.listening import FREE, listening

NOBODY = 65534


def _prepared(home: Path, *, store: str | None = None, **ports: int) -> State:
    home.mkdir(exist_ok=True)
    state = state_of(home, asked=ports, store=store)
    state.prepare()
    state.write_env()
    return state


def _noted(state: State, running: RunningServer) -> None:
    """As `up` notes what it has started."""
    replace(running, home=str(state.home), host=socket.gethostname(), store=state.store).note(state.note_file(running.name))


def _up(state: State, **hardware: Any) -> list[str]:
    said: list[str] = []
    up(state, Hardware(**hardware), said.append)
    return said


@pytest.mark.parametrize("own", [{}, {"NO_PROXY": "corp.example"}])
def test_local_addresses_bypass_proxies(own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would see the token and the password of MLflow."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    state = _prepared(tmp_path, ray=6390, mlflow=5990)
    state.password_file.touch()
    words = '"$RAY_ADDRESS" "$MLFLOW_TRACKING_URI" "$SENTDIST_STORE" "$no_proxy" "$NO_PROXY"'
    sourced = ["bash", "-euc", f". {shlex.quote(str(state.folder / 'env'))}; printf '%s\\n' {words}"]
    shown = subprocess.run(sourced, capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown[:3] == ["127.0.0.1:6390", "http://127.0.0.1:5990", state.store]
    shell = dict(zip(("no_proxy", "NO_PROXY"), shown[3:], strict=True))
    for found in (shell, state.environment(own)):
        for name in ("no_proxy", "NO_PROXY"):
            assert {"127.0.0.1", "localhost", *own.values()} == {*filter(None, found[name].split(","))}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[list[str], Mapping[str, str], RunningServer]]]:
    """Commands and environments of servers; a process that sleeps takes the place of each, and answers at once."""
    seen: list[tuple[list[str], Mapping[str, str], RunningServer]] = []

    def _launch(name: str, command: list[str], environment: Mapping[str, str], log: Path, **facts: Any) -> RunningServer:
        running = launch(name, ["sleep", "600"], environment, log, **facts)
        log.write_text("Ray runtime started.")
        seen.append((command, environment, running))
        return running

    monkeypatch.setattr(servers, "launch", _launch)
    monkeypatch.setattr(servers, "is_free", lambda port: True)
    monkeypatch.setattr(servers, "get", lambda url, **_: Reply(status=200, text=""))
    monkeypatch.setattr(RunningServer, "listens_at", lambda running, port: True)
    for name, value in {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_AUTH_MODE": "disabled", "MLFLOW_TRACKING_PASSWORD": "of another"}.items():
        monkeypatch.setenv(name, value)
    yield seen
    end([running for _, _, running in seen])


def test_servers_listen_on_loopback_require_secrets_and_use_no_other_cluster(started: list[Any], tmp_path: Path) -> None:
    said = _up(_prepared(tmp_path, **FREE), cpus=2, gpus=0)
    assert [line.partition(" at ")[0] for line in said[:2]] == ["Starting Ray", "Starting MLflow"]
    (ray, of_ray, _), (mlflow, of_mlflow, _) = started
    assert ray[ray.index("--num-cpus") :][:4] == ["--num-cpus", "2", "--num-gpus", "0"]
    for command, option in ((ray, "--node-ip-address"), (ray, "--dashboard-host"), (mlflow, "--host")):
        assert command[command.index(option) + 1] == "127.0.0.1"
    assert of_ray["RAY_AUTH_MODE"] == "token" and of_ray["RAY_enable_metrics_collection"] == "0"
    assert not {"RAY_ADDRESS", "MLFLOW_TRACKING_PASSWORD"} & {*of_ray, *of_mlflow}
    secret = of_mlflow["MLFLOW_AUTH_ADMIN_PASSWORD"]
    assert len(secret) == 32 and not [word for word in (*ray, *mlflow) if secret in word]
    assert all("is up already" in line for line in _up(state_of(tmp_path)))  # at the ports that were noted
    assert len(started) == 2
    with pytest.raises(ServerError, match="it running at"):
        _up(state_of(tmp_path, asked={"mlflow": 7002}))


def test_mlflow_keeps_its_password_and_a_lost_one_removes_the_users(started: list[Any], tmp_path: Path) -> None:
    state, made = _prepared(tmp_path, **FREE), []
    for action in ("first start", "second start", "password lost"):
        if action == "password lost":
            state.password_file.unlink()
            with pytest.raises(ServerError, match="sentdist down"):
                _up(state)
        state.note_file("mlflow").unlink(missing_ok=True)
        _up(state)
        password = state.password_file.read_text()
        assert state.mlflow_link == f"http://sentdist:{password}@127.0.0.1:7001/login"
        assert state.password_file.stat().st_mode & 0o777 == 0o600
        made.append((password, (state.folder / "mlflow_users.db").exists()))
        (state.folder / "mlflow_users.db").touch()  # as the server does
    assert made[0] == (made[1][0], False) and made[1][1]
    assert made[2][0] != made[0][0] and not made[2][1], "users keep their passwords: the database must go with the file"


@pytest.mark.parametrize(
    ("fault", "said"), [("dies", r"ended while starting \(process exit code 7\)"), ("silent", "no answer"), ("no note", "directory")]
)
def test_servers_that_fail_are_stopped(fault: str, said: str, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = _prepared(tmp_path, **FREE)
    monkeypatch.setattr(servers, "START_S", 0.1)
    monkeypatch.setattr(servers, "get", lambda url, **_: None)
    monkeypatch.setattr(State, "log", lambda state, server: state.folder / "logs" / "log")
    if fault == "dies":
        monkeypatch.setattr(RunningServer, "is_alive", property(lambda one: False))
        monkeypatch.setattr(
            servers, "_start", lambda state, server, _: _noted(state, _sleeping(server, state, "process exit code 7\nBye."))
        )
    elif fault == "no note":
        (state.note_file("mlflow") / "in the way").mkdir(parents=True)
    with pytest.raises(OSError if fault == "no note" else ServerError, match=said):
        _up(state)
    assert not [one for _, _, one in started if one.processes()] and not state.note_file("ray").exists()


def _sleeping(name: str, state: State, log: str) -> RunningServer:
    running = launch(name, ["true"], {}, state.log(name), ports={}, cwd=state.home)
    state.log(name).write_text(log)
    return running


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    open("made", "w").close()
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
print("ready", os.getsid(0) == os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that ignores SIGTERM, with a child in another session."""
    (tmp_path / "server.py").write_text(STUBBORN)
    log = tmp_path / "log"
    folder = tmp_path / f"sentdist-{os.getuid()}" / "ray-files"
    folder.mkdir(parents=True)
    command = [sys.executable, str(tmp_path / "server.py")]
    running = launch("ray", command, dict(os.environ), log, ports={"ray": 1}, cwd=tmp_path, folder=str(folder))
    while log.read_text().count("ready True") < 2:
        assert running.is_alive, log.read_text()
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600
    yield running
    for process in running.processes():
        with suppress(psutil.Error):
            process.kill()


def test_down_kills_what_was_started_here_and_no_other_process(
    stubborn: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "END_S", 0.5)
    state = _prepared(tmp_path / "home")
    _noted(state, stubborn)
    _noted(state, replace(stubborn, name="mlflow", pid=os.getpid(), mark="another"))  # its pid is ours by now
    assert len(stubborn.processes()) == 2
    said: list[str] = []
    down(state, said.append)
    assert said == ["Ray stopped.", "MLflow is not running."]
    assert not stubborn.is_alive and not [one for one in stubborn.processes() if one.status() != psutil.STATUS_ZOMBIE]
    assert not Path(stubborn.folder).exists() and not list(state.folder.glob("*.json"))


def test_doctor_examines_the_servers_of_this_folder(stubborn: RunningServer, tmp_path: Path) -> None:
    state = _prepared(tmp_path / "home", **FREE)
    shell = {"PATH": "/bin"}
    assert list(servers.examine(state, shell)) == []
    _noted(state, replace(stubborn, ports={}))
    _noted(state, RunningServer(name="mlflow", pid=os.getpid(), mark="x", ports={}))
    found = list(servers.examine(state, shell))
    assert [is_sound for is_sound, _ in found] == [True, False, True]
    assert "has ended" in found[1][1] and "source .sentdist/env" in found[2][1]
    assert shell["RAY_ADDRESS"] == "127.0.0.1:7379" and shell["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:7001"
    assert len(list(servers.examine(state, shell))) == 2, "it knows them by now"


SERVER = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(600)"


def test_the_token_goes_only_to_a_server_that_was_started_here(
    stubborn: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program that takes the port of the dashboard must not learn the token."""
    asked: list[str] = []
    monkeypatch.setattr(servers, "get", lambda url, authorization="", **_: asked.append(authorization))
    log = tmp_path / "port"
    ours = launch("ray", [sys.executable, "-c", SERVER], {MARK: "x"}, log, ports={}, cwd=tmp_path)
    while not log.read_text():
        assert ours.is_alive
    state = _prepared(tmp_path / "home", **FREE | {"dashboard": int(log.read_text())})
    state.log("ray").write_text("")
    assert not servers._answers(state, "ray", stubborn) and not asked
    assert not servers._answers(state, "ray", ours) and asked == [f"Bearer {state.token_file.read_text()}"]
    end([ours])


def test_a_copied_folder_ends_no_servers_and_removes_nothing(stubborn: RunningServer, tmp_path: Path) -> None:
    state = _prepared(tmp_path / "one")
    _noted(state, stubborn)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    said: list[str] = []
    down(state_of(tmp_path / "two"), said.append)
    assert said == ["Ray is not running.", "MLflow is not running."] and stubborn.is_alive
    known = noted(state.note_file("ray"))
    assert known is not None
    replace(known, host="elsewhere").note(state.note_file("ray"))
    with pytest.raises(ServerError, match="a server that was started on elsewhere"):
        state_of(tmp_path / "one")
    (tmp_path / "precious").mkdir()
    end([RunningServer(name="ray", pid=1, mark="none", ports={}, folder=str(tmp_path / "precious"))])
    assert (tmp_path / "precious").is_dir()


def test_a_secret_is_made_once_and_again_after_a_crash_left_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o644)
    made = make_secret(tmp_path / "secret")
    assert len(made) == 64 and make_secret(tmp_path / "secret") == made
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_others_may_change_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o750)
    planted = {"link": "a link", "file": "File exists", "open": "mode 750"}
    if os.geteuid() == 0:  # only root can give a folder away
        (tmp_path / "theirs").mkdir(mode=0o700)
        os.chown(tmp_path / "theirs", NOBODY, NOBODY)
        planted["theirs"] = "another user's folder"
    for name, reported in planted.items():
        with pytest.raises(ServerError, match=reported):
            private_folder(tmp_path / name)
    (tmp_path / ".sentdist").symlink_to(tmp_path / "open")
    with pytest.raises(ServerError, match="a link"):
        state_of(tmp_path).check_owner()
    (tmp_path / "home" / ".sentdist").mkdir(mode=0o755, parents=True)
    state_of(tmp_path / "home").check_owner()
    state_of(tmp_path / "home").prepare()
    assert (tmp_path / "home" / ".sentdist").stat().st_mode & 0o777 == 0o700, "a training made it; it becomes private"


def test_a_secret_follows_a_redirect_on_its_server_and_to_no_other() -> None:
    with listening(text="theirs") as other, listening(to=f"{other.url}/there") as server:
        reply = get(server.url, authorization="Bearer x", timeout_s=5)
        assert reply is not None and reply.text == "theirs"
        assert other.shown == [("/there", None)]
    with listening(to="/?again") as server:
        assert get(server.url, authorization="Bearer x", timeout_s=5) is None  # too many redirects
        assert len(server.shown) > 1 and {shown for _, shown in server.shown} == {"Bearer x"}


def test_a_port_that_is_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        state = _prepared(tmp_path, **FREE | {"dashboard": other.getsockname()[1]})
        with pytest.raises(ServerError, match=r"SENTDIST_DASHBOARD_PORT=\d+ sentdist up"):
            _up(state)
    assert not list(state.folder.glob("*.json"))
