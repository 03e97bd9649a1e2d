"""`sentdist up` while servers start, die and answer late, by a clock of its own; what it leaves behind when it gives up."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from sentdist.errors import ServerError
from sentdist.services import processes, servers
from sentdist.services import processes as asking
from sentdist.services import processes as ports
from sentdist.services import state as folders
from sentdist.services.processes import MARK, Port, Reply, RunningServer, answers, end, get, launch, ray_version
from sentdist.services.servers import Hardware, up
from sentdist.services.state import State, state_of
from tests.support.listening import FREE, listening
from tests.support.waiting import wait_for


class Scene:
    """Servers that are not there. lives: whether the n-th of a name lives; log: what they write."""

    def __init__(self) -> None:
        self.launched: list[tuple[str, list[str], Mapping[str, str]]] = []
        self.ended: list[str] = []
        self.now = 0.0
        self.lives: Callable[[str, int], bool] = lambda name, number: True
        self.answers: Callable[[str], bool] = lambda name: True
        self.log = "Ray runtime started."
        self.version: str | None = None

    def number(self, name: str) -> int:
        return sum(one == name for one, _, _ in self.launched)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()

    def start(name: str, command: list[str], environment: Mapping[str, str], log: Path, **facts: Any) -> RunningServer:
        made.launched.append((name, command, environment))
        log.write_text(made.log)
        return RunningServer(name=name, pid=1, began=0.0, mark="m", ports=facts["ports"])

    def sleep(seconds: float) -> None:
        made.now += seconds

    monkeypatch.setattr(servers, "launch", start)
    monkeypatch.setattr(servers, "end", lambda ended: made.ended.extend(one.name for one in ended))
    monkeypatch.setattr(servers, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=sleep))
    monkeypatch.setattr(servers, "_answers", lambda state, server: made.answers(server))
    monkeypatch.setattr(servers, "_serves_clients", lambda state: True)
    monkeypatch.setattr(servers, "_version_of_ray", lambda state: made.version)
    monkeypatch.setattr(RunningServer, "is_alive", property(lambda one: made.lives(one.name, made.number(one.name))))
    monkeypatch.setattr(RunningServer, "processes", lambda one: [])
    monkeypatch.setattr(Port, "need", lambda port: None)
    return made


def _up(home: Path, *, store: str | None = None, **hardware: Any) -> list[str]:
    said: list[str] = []
    up(state_of(home, asked=FREE, store=store), Hardware(**hardware), said.append)
    return said


def _noted(home: Path, name: str) -> None:
    state = state_of(home, asked=FREE)
    state.prepare()
    state.password_file.write_text("password")
    numbers = {"ray": FREE["ray"], "dashboard": FREE["dashboard"]} if name == "ray" else {"mlflow": FREE["mlflow"]}
    one = RunningServer(name=name, pid=1, began=0.0, mark="m", ports=numbers, home=str(home), host=socket.gethostname(), store=state.store)
    one.note(state.note_file(name))


def test_ray_that_did_not_come_up_in_its_time_is_started_again_and_three_times_at_most(scene: Scene, tmp_path: Path) -> None:
    scene.log = "Ray runtime started.\nray: timed out during startup\n"
    scene.lives = lambda name, number: name == "mlflow" or number > 2
    assert sum("did not come up within its 30 s; once more" in line for line in _up(tmp_path)) == 2 and scene.number("ray") == 3
    scene.launched.clear()
    scene.lives = lambda name, number: name == "mlflow"
    (tmp_path / "other").mkdir()
    with pytest.raises(ServerError, match="that it ended while starting"):
        _up(tmp_path / "other")
    assert scene.number("ray") == servers.RAY_ATTEMPTS == 3


def test_ray_that_ended_after_it_had_answered_is_started_again(scene: Scene, tmp_path: Path) -> None:
    scene.lives = lambda name, number: name == "mlflow" or number > 1 or scene.now < 1.0
    scene.answers = lambda name: name == "ray" or scene.number("ray") > 1
    said = _up(tmp_path)
    assert scene.number("ray") == 2 and any("Ray ended after it had answered; once more" in line for line in said)


def test_a_server_that_ends_while_it_starts_is_reported_by_what_ended_it_and_the_other_does_not_stay(scene: Scene, tmp_path: Path) -> None:
    scene.log = "one\nprocess gcs_server has ended with exit code 7\nGoodbye.\n"
    scene.lives = lambda name, number: name == "mlflow"
    with pytest.raises(ServerError, match=r"\(process gcs_server has ended with exit code 7\)"):
        _up(tmp_path)
    assert sorted(scene.ended) == ["mlflow", "ray"] and not list((tmp_path / ".sentdist").glob("*.json"))
    scene.log = "one\n\nlast words\n\n"
    with pytest.raises(ServerError, match=r"\(last words\)"):
        _up(tmp_path)


def test_who_does_not_answer_is_waited_for_with_a_line_every_ten_seconds_and_not_for_ever(scene: Scene, tmp_path: Path) -> None:
    scene.answers = lambda name: name == "ray"
    said: list[str] = []
    with pytest.raises(ServerError, match=r"MLflow at http://127.0.0.1:7001: found no answer within 300 s"):
        up(state_of(tmp_path, asked=FREE), Hardware(), said.append)
    assert 25 < sum(line.startswith("Waiting for MLflow: ") for line in said) < 31 and sorted(scene.ended) == ["mlflow", "ray"]


def test_what_an_earlier_start_left_is_ended_before_another_one(scene: Scene, tmp_path: Path) -> None:
    _noted(tmp_path, "ray")
    scene.lives = lambda name, number: number > 0
    said = _up(tmp_path)
    assert said[0].startswith("Ray of an earlier start has ended") and scene.ended == ["ray"] and scene.number("ray") == 1


@pytest.mark.parametrize("dies", [True, False])
def test_a_server_that_was_found_again_has_twenty_seconds_to_answer_and_is_replaced_if_it_dies_meanwhile(
    dies: bool, scene: Scene, tmp_path: Path
) -> None:
    for name in ("ray", "mlflow"):
        _noted(tmp_path, name)
    scene.answers = lambda name: name == "mlflow" or scene.number("ray") > 0
    scene.lives = lambda name, number: name == "mlflow" or number > 0 or not dies or scene.now < 5.0
    if dies:
        assert any("Ray of an earlier start has ended" in line for line in _up(tmp_path)) and scene.number("ray") == 1
    else:
        with pytest.raises(ServerError, match="does not answer within 20 s"):
            _up(tmp_path)
        assert not scene.launched and not scene.ended, "it may be somebody's work"


@pytest.mark.parametrize(("version", "is_taken"), [(None, True), (importlib.metadata.version("ray"), True), ("1.0", False)])
def test_a_ray_that_does_not_say_its_version_is_taken_as_it_is(version: str | None, is_taken: bool, scene: Scene, tmp_path: Path) -> None:
    for name in ("ray", "mlflow"):
        _noted(tmp_path, name)
    scene.version = version
    if is_taken:
        assert all("is up already" in line for line in _up(tmp_path))
    else:
        with pytest.raises(ServerError, match=r"version 1\.0, running"):
            _up(tmp_path)


def test_other_hardware_changes_nothing_of_a_ray_that_runs_and_that_is_said(scene: Scene, tmp_path: Path) -> None:
    assert not any("hardware" in line for line in _up(tmp_path, cpus=2))
    assert any("Ray goes on with the hardware that it was started with" in line for line in _up(tmp_path, cpus=3))
    assert not any("hardware" in line for line in _up(tmp_path))


@pytest.mark.parametrize("metrics", [True, False])
def test_rays_ports_for_prometheus_are_open_only_if_asked_and_no_gpu_is_a_number_too(metrics: bool, scene: Scene, tmp_path: Path) -> None:
    _up(tmp_path, gpus=0, metrics=metrics)
    _, command, environment = scene.launched[0]
    assert ("RAY_enable_metrics_collection" in environment) != metrics
    assert command[command.index("--num-gpus") + 1] == "0" and "--num-cpus" not in command


def test_the_store_that_servers_were_started_for_is_that_of_later_commands(scene: Scene, tmp_path: Path) -> None:
    _up(tmp_path, store="/shared/store")
    assert state_of(tmp_path).store == "/shared/store"


def test_a_link_in_place_of_a_secret_is_refused_whoever_made_it(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.prepare()
    (tmp_path / "elsewhere").write_text("token")
    state.password_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ServerError, match="a link"):
        state.check_owner()


def test_a_file_for_shells_that_others_could_read_is_closed_and_takes_other_tokens_away(tmp_path: Path) -> None:
    state: State = state_of(tmp_path)
    state.prepare()
    (state.folder / "env").touch(mode=0o644)
    (state.folder / "env").chmod(0o644)
    path = state.write_env()
    assert path.stat().st_mode & 0o777 == 0o600
    shell = "MLFLOW_TRACKING_TOKEN=theirs; RAY_AUTH_TOKEN=theirs; export MLFLOW_TRACKING_TOKEN RAY_AUTH_TOKEN"
    state.password_file.touch()
    done = subprocess.run(["bash", "-ec", f"{shell}; . '{path}'; env"], capture_output=True, text=True, check=True)
    assert "theirs" not in done.stdout


def test_a_server_has_a_session_and_files_of_its_own_and_one_that_has_ended_is_dead(tmp_path: Path) -> None:
    """Ctrl-C would reach it otherwise; and nobody waits for it, so that it stays as a zombie."""
    script = "import os, time; open('made', 'w').close(); print(os.getsid(0) == os.getpid(), flush=True); time.sleep(600)"
    running = launch("ray", [sys.executable, "-c", script], dict(os.environ), tmp_path / "log", ports={}, cwd=tmp_path)
    wait_for(lambda: bool((tmp_path / "log").read_text()), what="the server")
    assert (tmp_path / "log").read_text() == "True\n" and (tmp_path / "made").stat().st_mode & 0o777 == 0o600
    assert running.is_alive
    psutil.Process(running.pid).kill()
    wait_for(lambda: psutil.Process(running.pid).status() == psutil.STATUS_ZOMBIE, what="its end")
    assert not running.is_alive and not running.processes()
    os.waitpid(running.pid, 0)


def test_whoever_ends_servers_from_within_one_does_not_end_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as `sentdist down` in a job: it has the server's mark, too."""
    mine, other = (
        SimpleNamespace(pid=pid, status=lambda: psutil.STATUS_RUNNING, environ=lambda: {MARK: "m"}) for pid in (os.getpid(), 2**22 + 1)
    )
    monkeypatch.setattr(processes.psutil, "process_iter", lambda: [mine, other])
    assert RunningServer(name="ray", pid=2**22 + 2, began=0.0, mark="m").processes() == [other]


def test_a_port_is_listened_at_also_by_what_a_server_has_started(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "if len(sys.argv) == 1:\n    subprocess.Popen([sys.executable, __file__, 'child'])\n"
        "else:\n    import socket\n    one = socket.create_server(('127.0.0.1', 0)); print(one.getsockname()[1], flush=True)\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "server.py").write_text(script)
    running = launch("ray", [sys.executable, str(tmp_path / "server.py")], dict(os.environ), tmp_path / "log", ports={})
    try:
        wait_for(lambda: (tmp_path / "log").read_text().endswith("\n"), what="the child")
        assert running.listens_at(int((tmp_path / "log").read_text()))
    finally:
        processes.end([running])
    assert not running.is_alive
    os.waitpid(running.pid, 0)


@pytest.mark.parametrize(("status", "is_there"), [(200, True), (401, False), (500, False)])
def test_a_server_is_ours_if_it_takes_the_token(status: int, is_there: bool) -> None:
    with listening(status=status) as server:
        assert answers(server.url, token="mine") == is_there
        assert server.shown == [("/", "Bearer mine")]


def test_a_port_that_only_root_may_have_is_reported_and_one_that_is_free_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __enter__(self) -> Refusing:
            return self

        def __exit__(self, *_: object) -> None: ...

        def setsockopt(self, *_: object) -> None: ...

        def bind(self, place: tuple[str, int]) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ports.socket, "socket", Refusing)
    monkeypatch.setattr(ports, "free_port", lambda: 31_234)
    with pytest.raises(ServerError, match=r"only root may listen there.*--ray-port 31234 \(SENTDIST_RAY_PORT does the same\)"):
        Port(number=80, who="Ray's head", option="--ray-port").need()


def test_who_has_a_port_is_who_listens_there_not_who_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    def process(pid: int, status: str) -> SimpleNamespace:
        at = SimpleNamespace(status=status, laddr=SimpleNamespace(port=7001))
        return SimpleNamespace(pid=pid, info={"name": f"p{pid}"}, net_connections=lambda kind: [at])

    found = [process(1, psutil.CONN_ESTABLISHED), process(2, psutil.CONN_LISTEN)]
    monkeypatch.setattr("psutil.process_iter", lambda fields: found)
    assert ports._owner(7001) == "process 2 (p2)" and ports._owner(7002) == "another program"


def test_a_login_in_an_address_is_shown_as_one_and_stays_out_of_the_request() -> None:
    with listening(text="ours") as server:
        reply = get(server.url.replace("://", "://me:p%40ss@") + "/there", timeout_s=5)
        assert reply is not None and server.shown == [("/there", asking.basic_auth_header("me", "p@ss"))]
        get(server.url.replace("://", "://me:p%40ss@"), authorization="Bearer x", timeout_s=5)
        assert server.shown[1][1] == "Bearer x"


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_are_those_that_other_clients_trust(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(asking.ssl, "create_default_context", lambda **given: made.append(given))
    monkeypatch.setattr(asking.urllib.request, "HTTPSHandler", lambda context: None)
    asking._trusting(None)
    for place in (tmp_path, tmp_path / "bundle.pem"):
        monkeypatch.setenv(variable, str(place))
        asking._trusting(None)
    folder, file = str(tmp_path), str(tmp_path / "bundle.pem")
    assert [(one["capath"], one["cafile"]) for one in made] == [(None, None), (folder, None), (None, file)]


def test_what_speaks_no_http_is_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            one, _ = server.accept()
            with one:
                one.recv(1000)
                one.sendall(b"hello, who is there?\r\n")

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        assert get(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=5) is None
        thread.join(5)


@pytest.mark.parametrize(
    ("text", "version"),
    [('{"ray_version": "2.60"}', "2.60"), ("[1]", None), ("3", None), ("{}", None), ("<html>", None), ('{"ray_version": null}', "None")],
)
def test_only_a_dashboard_of_ray_says_a_version_of_ray(text: str, version: str | None) -> None:
    assert ray_version(Reply(status=200, text=text)) == version
    assert ray_version(Reply(status=401, text=text)) is None and ray_version(None) is None


def test_shell_scripts_get_a_folder_or_an_exit_code_and_the_variable_that_helps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders.main(["private", str(tmp_path / "mine")])
    assert capsys.readouterr().out == f"{tmp_path}/mine\n"
    (tmp_path / "file").touch()
    for more, named in ((["OWN_PLACE"], "OWN_PLACE"), ([], folders.TEMP)):
        with pytest.raises(SystemExit) as ending:
            folders.main(["private", str(tmp_path / "file"), *more])
        assert f"{named}=/path/to/a/folder/of/yours" in str(ending.value.code), "a text: exit code 1"


def test_a_folder_for_sockets_that_is_a_little_too_long_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(f"/tmp/sd-{os.getpid()}-{'x' * 12}")
    place.mkdir(mode=0o700)
    try:
        monkeypatch.setenv("SENTDIST_TEMP", str(place))
        with pytest.raises(ServerError, match=f"expected at most {folders.LONGEST}"):
            folders.ray_folder("4294967295")
        assert folders.LONGEST < len(str(place)) + 20 < 80, "what sockets themselves would take"
    finally:
        shutil.rmtree(place)


FORGETFUL = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={}, start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_child_that_dropped_its_environment_ends_with_its_server(tmp_path: Path) -> None:
    """It has no mark, and once the server has ended, no parent that tells whose it is."""
    log = tmp_path / "log"
    running = launch("ray", [sys.executable, "-c", FORGETFUL], dict(os.environ), log, ports={})
    while not log.read_text().endswith("\n"):
        assert running.is_alive, log.read_text()
    child = psutil.Process(int(log.read_text()))
    try:
        end([running])
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    finally:
        if child.is_running():
            child.kill()
