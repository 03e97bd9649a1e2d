"""`sentdist up` while servers start, die and answer late, by a clock of its own; what it leaves behind when it gives up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from sentdist.errors import ServerError
from sentdist.services import servers
from sentdist.services.processes import Port, RunningServer, launch
from sentdist.services.servers import Hardware, up
from sentdist.services.state import state_of
from tests.support.listening import FREE
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
    monkeypatch.setattr(RunningServer, "is_alive", property(lambda one: made.lives(one.name, made.number(one.name))))
    monkeypatch.setattr(RunningServer, "processes", lambda one: [])
    monkeypatch.setattr(Port, "need", lambda port: None)
    return made


def _up(home: Path, *, store: str | None = None, **hardware: Any) -> list[str]:
    said: list[str] = []
    up(state_of(home, asked=FREE, store=store), Hardware(**hardware), said.append)
    return said


def test_ray_that_did_not_come_up_in_its_time_is_started_again_and_three_times_at_most(scene: Scene, tmp_path: Path) -> None:
    scene.log = "Ray runtime started.\nray: timed out during startup\n"
    scene.lives = lambda name, number: name == "mlflow" or number > 2
    assert sum("did not start within its 30 s" in line for line in _up(tmp_path)) == 2 and scene.number("ray") == 3
    scene.launched.clear()
    scene.lives = lambda name, number: name == "mlflow"
    (tmp_path / "other").mkdir()
    with pytest.raises(ServerError, match="that it ended while starting"):
        _up(tmp_path / "other")
    assert scene.number("ray") == servers.RAY_ATTEMPTS == 3


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
