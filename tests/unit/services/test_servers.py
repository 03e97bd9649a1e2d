"""`sentdist up` and `down` without Ray and MLflow: secrets, ports, folders, what a shell learns, which processes are ended."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from sentdist.errors import ServerError
from sentdist.services import processes, servers
from sentdist.services.processes import Port, RunningServer, end, get, launch, noted
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


def _in_a_shell(state: State, words: str) -> list[str]:
    state.password_file.touch()
    done = ["bash", "-euc", f". {shlex.quote(str(state.folder / 'env'))}; printf '%s\\n' {words}"]
    return subprocess.run(done, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("own", [{}, {"NO_PROXY": "corp.example"}])
def test_no_proxy_stands_between_a_machine_and_itself(own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would see the token and the password of MLflow."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    state = _prepared(tmp_path, ray=6390, mlflow=5990)
    shown = _in_a_shell(state, '"$RAY_ADDRESS" "$MLFLOW_TRACKING_URI" "$SENTDIST_STORE" "$no_proxy" "$NO_PROXY"')
    assert shown[:3] == ["127.0.0.1:6390", "http://127.0.0.1:5990", state.store]
    shell = dict(zip(("no_proxy", "NO_PROXY"), shown[3:], strict=True))
    for found in (shell, state.environment(own)):
        for name in ("no_proxy", "NO_PROXY"):
            assert {"127.0.0.1", "localhost", *own.values()} == {*filter(None, found[name].split(","))}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], Mapping[str, str]]]:
    """Commands and environments of servers, which are not started: this process stands for them, and they answer at once."""
    seen: list[tuple[list[str], Mapping[str, str]]] = []

    def _launch(name: str, command: list[str], environment: Mapping[str, str], log: Path, **facts: Any) -> RunningServer:
        seen.append((command, environment))
        log.write_text("Ray runtime started.")
        return RunningServer(name=name, pid=os.getpid(), began=psutil.Process().create_time(), mark="none", ports=facts["ports"])

    monkeypatch.setattr(servers, "launch", _launch)
    monkeypatch.setattr(servers, "answers", lambda url, token=None: True)
    monkeypatch.setattr(RunningServer, "listens_at", lambda running, port: True)
    for name, value in {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_AUTH_MODE": "disabled", "MLFLOW_TRACKING_PASSWORD": "of another"}.items():
        monkeypatch.setenv(name, value)
    return seen


def _up(state: State, **hardware: Any) -> list[str]:
    said: list[str] = []
    up(state, Hardware(**hardware), said.append)
    return said


def test_servers_listen_on_loopback_want_secrets_and_use_no_other_cluster(
    started: list[tuple[list[str], Mapping[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Port, "need", lambda port: None)
    said = _up(_prepared(tmp_path, **FREE), cpus=2, gpus=0)
    assert [line.partition(" at ")[0] for line in said[:2]] == ["Starting Ray", "Starting MLflow"]
    (ray, of_ray), (mlflow, of_mlflow) = started
    assert ray[ray.index("--num-cpus") :][:4] == ["--num-cpus", "2", "--num-gpus", "0"]
    for command, option in ((ray, "--node-ip-address"), (ray, "--dashboard-host"), (mlflow, "--host")):
        assert command[command.index(option) + 1] == "127.0.0.1"
    assert of_ray["RAY_AUTH_MODE"] == "token" and of_ray["RAY_enable_metrics_collection"] == "0"
    assert not {"RAY_ADDRESS", "MLFLOW_TRACKING_PASSWORD"} & {*of_ray, *of_mlflow}
    secret = of_mlflow["MLFLOW_AUTH_ADMIN_PASSWORD"]
    assert len(secret) == 32 and not [word for word in (*ray, *mlflow) if secret in word]
    assert all("is up already" in line for line in _up(state_of(tmp_path)))  # at the ports that were noted
    assert len(started) == 2
    with pytest.raises(ServerError, match="running at other ports"):
        _up(state_of(tmp_path, asked={"mlflow": 7002}))


def test_mlflow_gets_a_password_of_its_own_once(
    started: list[tuple[list[str], Mapping[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Port, "need", lambda port: None)
    state, made = _prepared(tmp_path, **FREE), []
    for action in ("first start", "second start", "password lost"):
        if action == "password lost":
            state.password_file.unlink()
            with pytest.raises(ServerError, match="sentdist down"):
                _up(state)  # who runs has a password that nobody knows
        state.note_file("mlflow").unlink(missing_ok=True)
        _up(state)
        password = state.password_file.read_text()
        assert state.mlflow_link == f"http://sentdist:{password}@127.0.0.1:7001/login"
        assert state.password_file.stat().st_mode & 0o777 == 0o600
        made.append((password, (state.folder / "mlflow_users.db").exists()))
        (state.folder / "mlflow_users.db").touch()  # as the server does
    assert made[0] == (made[1][0], False)
    assert made[1][1]
    assert made[2][0] != made[0][0]
    assert not made[2][1]  # the users of a database keep their passwords: it must go with the file


def test_servers_that_cannot_be_noted_do_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that is full by then they kept their ports, and `sentdist down` knew nothing of them."""
    launched: list[RunningServer] = []

    def _launch(name: str, command: list[str], environment: Mapping[str, str], log: Path, **facts: Any) -> RunningServer:
        launched.append(launch(name, ["sleep", "600"], environment, log, ports=facts["ports"]))
        return launched[-1]

    monkeypatch.setattr(servers, "launch", _launch)
    monkeypatch.setattr(Port, "need", lambda port: None)
    state = _prepared(tmp_path, **FREE)
    (state.note_file("mlflow") / "in the way").mkdir(parents=True)
    with pytest.raises(OSError):
        _up(state)
    alive = [one.name for one in launched if one.is_alive]
    end(launched)
    assert len(launched) == 2 and not alive


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that does not end when it is asked to, with a child in a session of its own."""
    (tmp_path / "server.py").write_text(STUBBORN)
    log = tmp_path / "log"
    folder = tmp_path / f"sentdist-{os.getuid()}" / "ray-files"
    folder.mkdir(parents=True)
    running = launch("ray", [sys.executable, str(tmp_path / "server.py")], dict(os.environ), log, ports={"ray": 1}, folder=str(folder))
    while log.read_text().count("ready") < 2:
        assert running.is_alive, log.read_text()
    yield running
    for process in running.processes():
        process.kill()


def test_down_ends_what_was_started_here_by_force_if_need_be_and_no_stranger(
    stubborn: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "END_S", 0.5)
    state = _prepared(tmp_path / "home")
    _noted(state, stubborn)
    _noted(state, replace(stubborn, name="mlflow", pid=os.getpid(), mark="another"))  # its number is ours by now
    members = stubborn.processes()
    assert len(members) == 2 and replace(stubborn, began=stubborn.began - 3600).is_alive, "though the clock was set"
    said: list[str] = []
    down(state, said.append)
    assert said == ["Ray stopped.", "MLflow is not running."]
    assert not stubborn.processes() and not Path(stubborn.folder).exists()
    assert not list(state.folder.glob("*.json"))


def test_doctor_looks_at_the_servers_of_this_folder(tmp_path: Path) -> None:
    state = _prepared(tmp_path, **FREE)
    shell = {"PATH": "/bin"}
    assert list(servers.examine(state, shell)) == []
    _noted(state, RunningServer(name="ray", pid=os.getpid(), began=psutil.Process().create_time(), mark="x"))
    _noted(state, RunningServer(name="mlflow", pid=os.getpid(), began=1.0, mark="x"))
    found = list(servers.examine(state, shell))
    assert [is_sound for is_sound, _ in found] == [True, False, True]
    assert "has ended" in found[1][1] and "source .sentdist/env" in found[2][1]
    assert shell["RAY_ADDRESS"] == "127.0.0.1:7379" and shell["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:7001"
    assert len(list(servers.examine(state, shell))) == 2, "it knows them by now"


def test_a_secret_goes_only_to_what_was_started_here(stubborn: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes the port of a dashboard that is gone must not learn the token."""
    asked: list[str | None] = []

    def answers(url: str, token: str | None = None) -> bool:
        asked.append(token)
        return True

    monkeypatch.setattr(servers, "answers", answers)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        state = _prepared(tmp_path, **FREE | {"dashboard": port})
        _noted(state, stubborn)
        assert not servers._answers(state, "ray") and not asked
        ours = RunningServer(name="ray", pid=os.getpid(), began=psutil.Process().create_time(), mark="none")
        assert ours.listens_at(port) and not ours.listens_at(1)
        _noted(state, ours)
        assert servers._answers(state, "ray") and asked == [state.token_file.read_text().strip()] != [""]


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
    end([RunningServer(name="ray", pid=1, began=0.0, mark="none", folder=str(tmp_path / "precious"))])
    assert (tmp_path / "precious").is_dir()


def test_ports_that_servers_cannot_have_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """One for two servers, and one of those of Ray's workers: Ray ended while it started, and the command named no reason."""
    for one, other in itertools.combinations(FREE, 2):
        with pytest.raises(ServerError, match=rf"SENTDIST_{one.upper()}_PORT: found {FREE[one]} twice; .* SENTDIST_{one.upper()}_PORT=\d+"):
            up(state_of(tmp_path, asked={**FREE, other: FREE[one]}, store=None), Hardware(), print)
    for server in FREE:
        with pytest.raises(
            ServerError, match=rf"SENTDIST_{server.upper()}_PORT: found 26379 among the ports of workers; .* outside 20000-29999"
        ):
            up(state_of(tmp_path, asked={**FREE, server: 26379}, store=None), Hardware(), print)
    assert not list(tmp_path.iterdir())


def test_a_secret_is_made_once_and_anew_where_a_crash_left_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o644)
    made = make_secret(tmp_path / "secret")
    assert len(made) == 64 and make_secret(tmp_path / "secret") == made
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_what_somebody_else_may_have_planted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o750)
    planted = {"link": "a symbolic link", "file": "File exists", "open": "mode 750"}
    if os.geteuid() == 0:  # only root can give a folder away
        (tmp_path / "theirs").mkdir(mode=0o700)
        os.chown(tmp_path / "theirs", NOBODY, NOBODY)
        planted["theirs"] = "of another user"
    for name, reported in planted.items():
        with pytest.raises(ServerError, match=reported):
            private_folder(tmp_path / name)
    (tmp_path / ".sentdist").symlink_to(tmp_path / "open")
    with pytest.raises(ServerError, match="a link"):
        state_of(tmp_path).check_owner()


def test_a_secret_follows_a_server_to_itself_and_to_nobody_else() -> None:
    with listening(text="theirs") as other, listening(to=f"{other.url}/there") as server:
        reply = get(server.url, authorization="Bearer x", timeout_s=5)
        assert reply is not None and reply.text == "theirs"
        assert other.shown == [("/there", None)]
    with listening(to="/?again") as server:
        assert get(server.url, authorization="Bearer x", timeout_s=5) is None  # too many redirects
        assert len(server.shown) > 1 and {shown for _, shown in server.shown} == {"Bearer x"}


def test_a_port_that_is_taken_is_reported_before_anything_starts(started: list[object], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        state = _prepared(tmp_path, **FREE | {"dashboard": other.getsockname()[1]})
        with pytest.raises(ServerError, match=r"Address already in use.* SENTDIST_DASHBOARD_PORT=\d+ sentdist up"):
            _up(state)
    assert not started


def test_a_folder_that_a_training_made_is_made_private(tmp_path: Path) -> None:
    (tmp_path / ".sentdist").mkdir(mode=0o755)
    state_of(tmp_path).check_owner()
    state_of(tmp_path).prepare()
    assert (tmp_path / ".sentdist").stat().st_mode & 0o777 == 0o700
