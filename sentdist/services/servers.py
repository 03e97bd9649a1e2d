"""Start, find and stop Ray's head and MLflow on 127.0.0.1, each with a secret."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sentdist.errors import ServerError, listed
from sentdist.services.processes import HOST, OF_WORKERS, Port, RunningServer, answers, end, free_port, launch
from sentdist.services.state import SERVERS, USER, State, make_secret, ray_folder
from sentdist.text import PrintLine, without_secrets

START_S = 300.0  # a busy machine with a slow disk takes 60 s
ANSWER_S = 20.0  # for a server that was found again
SAY_EVERY_S = 10.0
PAUSE_S = 0.3
RAY_ATTEMPTS = 3  # Ray gives its own node 30 s, which a machine that is busy with other work may exceed
NAMED_BY = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")
TITLES = {"ray": "Ray", "mlflow": "MLflow"}
METRICS_OFF = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1", "DASHBOARD_METRIC_PORT": "-1"}
AUTH = """\
[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{users}
authorization_function = sentdist.tracking.mlflow_login:authenticate
auth_cache_ttl_seconds = 600
"""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Resources for Ray; None: all it detects."""

    cpus: int | None = None
    gpus: int | None = None
    object_store_bytes: int = 1_000_000_000
    metrics: bool = False  # open its ports for Prometheus, which require no token


@dataclass(kw_only=True)
class _Starting:
    server: str
    attempt: int = 1
    is_ready: bool = False


def up(state: State, hardware: Hardware, print_line: PrintLine) -> None:
    """Start the servers that do not run, and return when both answer (at most `START_S`); prints a line at least every 10 s.

    Raises:
        ServerError: a port is in use, given twice or reserved for Ray's workers; a server ended while starting, or does not answer.
    """
    if os.name != "posix":
        raise ServerError(where="sentdist up", found=sys.platform, expected="Linux or macOS", remedy="On Windows use WSL 2.")
    _check_fit([port for server in SERVERS for port in _ports(state, server)])
    state.prepare()
    with _alone(state, print_line):
        _up(state, hardware, print_line)


def _up(state: State, hardware: Hardware, print_line: PrintLine) -> None:
    to_start = [server for server in SERVERS if not _found_again(state, server, print_line)]
    if "ray" not in to_start and hardware != Hardware():
        print_line("Ray keeps the resources that it was started with: run `sentdist down` first to change them.")
    for server in to_start:
        for port in _ports(state, server):
            port.need()
    state.write_env()
    starting: list[_Starting] = []
    try:
        for server in to_start:
            print_line(f"Starting {TITLES[server]} at {_address(state, server)} …")
            _start(state, server, hardware)
            starting.append(_Starting(server=server))
        _wait(starting, state, hardware, print_line)
    except BaseException:  # also Ctrl-C: no half-started server is left
        for one in starting:
            _give_up(state, one.server)
        raise


def down(state: State, print_line: PrintLine) -> None:
    """Stop the servers that `up` started in this folder, by its notes.

    Raises:
        ServerError: the notes are another user's, or of another machine.
    """
    state.check_owner()
    noted = [one for server in SERVERS if (one := state.running(server)) is not None]
    alive = [one.name for one in noted if one.processes()]
    end(noted)
    for server in SERVERS:
        state.note_file(server).unlink(missing_ok=True)
        print_line(f"{TITLES[server]} stopped." if server in alive else f"{TITLES[server]} is not running.")


def examine(state: State, environment: MutableMapping[str, str]) -> Iterator[tuple[bool, str]]:
    """Yield (whether it is well, a sentence) for each server that `up` noted in this folder.

    If the shell names no servers, their addresses are added to `environment`, so that later checks use them.
    """
    state.check_owner()
    noted = [server for server in SERVERS if state.running(server) is not None]
    for server in noted:
        running = state.running(server)
        if running is not None and running.is_alive:
            yield True, f"{TITLES[server]} runs as process {running.pid} at {_address(state, server)}"
        elif running is not None:
            yield False, f"{TITLES[server]}, process {running.pid}, has ended; its log: {state.log(server)}. `sentdist up` starts it again."
    if noted and not any(name in environment for name in (*NAMED_BY, "RAY_API_SERVER_ADDRESS")):
        environment.update(state.addresses | {"RAY_ADDRESS": state.ray})
        yield True, "this shell does not know them yet: `source .sentdist/env`. The checks below use them."
    elif noted and any(environment.get(name) != address for name, address in zip(NAMED_BY, (state.ray, state.mlflow), strict=True)):
        others = ", ".join(f"{name}={without_secrets(environment.get(name, ''))}" for name in NAMED_BY)
        yield True, f"this shell uses others ({others}); `source .sentdist/env` switches to these."


@contextmanager
def _alone(state: State, print_line: PrintLine) -> Iterator[None]:
    """Hold the lock for starting servers in this folder; the system releases it if its holder is killed."""
    import fcntl  # POSIX only

    with (state.folder / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_line("Another `sentdist up` is starting the servers of this folder; waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _found_again(state: State, server: str, print_line: PrintLine) -> bool:
    """Whether it runs, answers and fits the request. Processes left by an ended server are stopped."""
    running = state.running(server)
    if running is None:
        return False
    if not running.is_alive:
        left = running.processes()
        leaving = f"; stopping its {len(left)} remaining processes" if left else ""
        print_line(f"{TITLES[server]} of an earlier start has ended{_last_line(state, server)}{leaving}.")
        end([running])
        state.note_file(server).unlink(missing_ok=True)
        return False
    remedy = "Stop it with `sentdist down`, then run this again."
    if dict(running.ports) != {name: getattr(state.ports, name) for name in running.ports}:
        places = ", ".join(f"{name} {port}" for name, port in running.ports.items())
        raise ServerError(where=TITLES[server], found=f"it running at other ports ({places})", expected="those given", remedy=remedy)
    if server == "mlflow" and not state.password_file.exists():
        raise ServerError(where=str(state.password_file), found="nothing", expected="the password of the running MLflow", remedy=remedy)
    until = time.monotonic() + ANSWER_S
    while not _answers(state, server):
        if not running.is_alive:
            return _found_again(state, server, print_line)
        if time.monotonic() > until:
            raise ServerError(
                where=f"{TITLES[server]} at {_address(state, server)}", expected="a server that answers",
                found=f"process {running.pid}, which was started here and does not answer within {ANSWER_S:.0f} s",
                remedy=f"{remedy} Its log: {state.log(server)}",
            )  # fmt: skip
        time.sleep(PAUSE_S)
    print_line(f"{TITLES[server]} is up already: {_address(state, server)}")
    return True


def _wait(starting: list[_Starting], state: State, hardware: Hardware, print_line: PrintLine) -> None:
    began = spoke_at = time.monotonic()
    while not all(start.is_ready for start in starting):
        for start in starting:  # also those that have answered: all must run at the end
            running = state.running(start.server)
            if running is None or not running.is_alive:
                may_again = start.server == "ray" and start.attempt < RAY_ATTEMPTS
                if not may_again or not (start.is_ready or "timed out during startup" in _log(state, "ray")):
                    raise _ended(state, start.server)
                print_line(f"Ray {'ended after its first answer' if start.is_ready else 'did not start within its 30 s'}; trying again …")
                _give_up(state, "ray")
                start.attempt, start.is_ready = start.attempt + 1, False
                _start(state, "ray", hardware)
            elif not start.is_ready and _is_ready(state, start.server):
                start.is_ready = True
                spoke_at = time.monotonic()
                print_line(f"{TITLES[start.server]} answers after {spoke_at - began:.0f} s.")
        now = time.monotonic()
        waited_for = [start.server for start in starting if not start.is_ready]
        if waited_for and now - began > START_S:
            server = waited_for[0]
            raise ServerError(
                where=f"{TITLES[server]} at {_address(state, server)}", found=f"no answer within {START_S:.0f} s",
                expected="a server that answers", remedy=f"It was stopped. Its log: {state.log(server)}",
            )  # fmt: skip
        if waited_for and now - spoke_at > SAY_EVERY_S:
            spoke_at = now
            print_line(f"Waiting for {listed([TITLES[name] for name in waited_for])}: {now - began:.0f} s of at most {START_S:.0f} …")
        time.sleep(PAUSE_S)


def _ended(state: State, server: str) -> ServerError:
    return ServerError(
        where=f"{TITLES[server]} at {_address(state, server)}", found=f"that it ended while starting{_last_line(state, server)}",
        expected="a server that answers", remedy=f"Its log: {state.log(server)}",
    )  # fmt: skip


def _last_line(state: State, server: str) -> str:
    """The last line of its log, or the last about a process that ended, in brackets."""
    lines = [line.strip() for line in _log(state, server).splitlines() if line.strip()]
    ending = [line for line in lines if "exit code" in line] or lines
    return f" ({ending[-1]})" if ending else ""


def _give_up(state: State, server: str) -> None:
    if (running := state.running(server)) is not None:
        end([running])
        state.note_file(server).unlink(missing_ok=True)


def _address(state: State, server: str) -> str:
    return state.mlflow if server == "mlflow" else f"{state.ray}, dashboard {state.dashboard}"


def _ports(state: State, server: str) -> tuple[Port, ...]:
    if server == "mlflow":
        return (Port(number=state.ports.mlflow, who="MLflow", option="--mlflow-port"),)
    return (
        Port(number=state.ports.ray, who="Ray's head", option="--ray-port"),
        Port(number=state.ports.dashboard, who="Ray's dashboard", option="--dashboard-port"),
    )


def _check_fit(ports: Sequence[Port]) -> None:
    """Raise ServerError for a port that Ray's workers may use, which would end Ray while it starts, and for equal ports."""
    for port in ports:
        if port.number in OF_WORKERS:
            raise ServerError(
                where=f"sentdist up {port.option}", found=f"{port.number}, which is reserved for Ray's workers",
                expected=f"a port outside {OF_WORKERS[0]}-{OF_WORKERS[-1]}",
                remedy=f"Give {port.who} another: {port.option} {free_port()} ({port.variable} does the same).",
            )  # fmt: skip
    for one, other in itertools.combinations(ports, 2):
        if one.number == other.number:
            raise ServerError(
                where=f"sentdist up {one.option} and {other.option}", found=f"{one.number} twice", expected="different ports",
                remedy=f"Give {other.who} another: {other.option} {free_port()} ({other.variable} does the same).",
            )  # fmt: skip


def _answers(state: State, server: str) -> bool:
    """Whether our server answers. Another program on its port gets no request, so that it never sees the token."""
    running, port = state.running(server), state.ports.mlflow if server == "mlflow" else state.ports.dashboard
    if running is None or not running.listens_at(port):
        return False
    if server == "mlflow":
        return answers(f"{state.mlflow}/health")
    return answers(f"{state.dashboard}/api/version", token=state.token_file.read_text().strip())


def _is_ready(state: State, server: str) -> bool:
    """Whether it answers; for Ray also its client server, the last process to listen, without which Ray ends."""
    if server == "ray" and ("Ray runtime started" not in _log(state, "ray") or not _serves_clients(state)):
        return False
    return _answers(state, server)


def _serves_clients(state: State) -> bool:
    running = state.running("ray")
    port = None if running is None else running.option("--ray-client-server-port")
    return running is not None and (port is None or running.listens_at(int(port)))


def _log(state: State, server: str) -> str:
    try:
        return state.log(server).read_text(errors="replace")
    except OSError:
        return ""


def _start(state: State, server: str, hardware: Hardware) -> None:
    running = _start_ray(state, hardware) if server == "ray" else _start_mlflow(state)
    try:
        replace(running, home=str(state.home), host=socket.gethostname(), store=state.store).note(state.note_file(server))
    except BaseException:  # such as a full disk: without a note it could not be found again
        end([running])
        raise


def _start_ray(state: State, hardware: Hardware) -> RunningServer:
    folder = ray_folder(str(zlib.crc32(str(state.home).encode())))  # not in the working folder, whose path may be long
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--head", "--block", "--node-ip-address", HOST]
    command += ["--port", str(state.ports.ray), "--dashboard-host", HOST, "--dashboard-port", str(state.ports.dashboard)]
    command += ["--include-dashboard", "true"]  # with this option, a dashboard whose port is taken ends Ray at once
    command += ["--dashboard-agent-listen-port", "0", "--ray-client-server-port", str(free_port())]
    command += ["--min-worker-port", str(OF_WORKERS[0]), "--max-worker-port", str(OF_WORKERS[-1])]
    command += ["--temp-dir", str(folder), "--disable-usage-stats"]
    command += ["--object-store-memory", str(hardware.object_store_bytes)]
    for option, count in (("--num-cpus", hardware.cpus), ("--num-gpus", hardware.gpus)):
        command += [option, str(count)] if count is not None else []
    environment = state.environment(os.environ) | ({} if hardware.metrics else METRICS_OFF)
    ports = {"ray": state.ports.ray, "dashboard": state.ports.dashboard}
    return launch("ray", command, environment, state.log("ray"), ports=ports, folder=str(folder))


def _start_mlflow(state: State) -> RunningServer:
    users = state.folder / "mlflow_users.db"
    if not state.password_file.exists() or not state.password_file.stat().st_size:
        users.unlink(missing_ok=True)  # it holds the lost password and accepts no new one
    environment = state.environment(os.environ) | {
        "MLFLOW_AUTH_CONFIG_PATH": str(state.folder / "mlflow_auth.ini"),
        "MLFLOW_AUTH_ADMIN_USERNAME": USER,
        "MLFLOW_AUTH_ADMIN_PASSWORD": make_secret(state.password_file, num_bytes=16),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": make_secret(state.folder / "mlflow_secret_key"),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    database = state.folder / "mlflow.db"
    write_ahead(database)
    (state.folder / "mlflow_auth.ini").write_text(AUTH.format(users=str(users).replace("%", "%%")))
    command = [
        sys.executable,
        "-P",
        "-m",
        "mlflow",
        "server",
        "--app-name",
        "basic-auth",
        "--host",
        HOST,
        "--port",
        str(state.ports.mlflow),
    ]
    command += ["--backend-store-uri", f"sqlite:///{database}", "--serve-artifacts", "--workers", "1"]
    command += ["--artifacts-destination", str(state.folder / "mlflow-artifacts")]
    return launch("mlflow", command, environment, state.log("mlflow"), ports={"mlflow": state.ports.mlflow}, cwd=state.log("mlflow").parent)


def write_ahead(database: Path) -> None:
    """Enable SQLite's write-ahead log, so that readers and writers do not block each other; the file keeps the setting.

    All processes that use it run on one host. Errors are left to MLflow, which reports them.
    """
    with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
