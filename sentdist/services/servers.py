"""Start, find and stop Ray's head and MLflow on 127.0.0.1, each with a secret."""

from __future__ import annotations

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
    to_start = [server for server in SERVERS if not _runs(state, server, print_line)]
    if "ray" not in to_start and hardware != Hardware():
        print_line("Ray keeps the resources that it was started with: run `sentdist down` first to change them.")
    for server in to_start:
        for port in _ports(state, server):
            port.need()
    state.write_env()
    try:
        for server in to_start:
            print_line(f"Starting {TITLES[server]} at {_address(state, server)} …")
            _start(state, server, hardware)
        _wait(to_start, state, hardware, print_line)
    except BaseException:  # also Ctrl-C: no half-started server is left
        for server in to_start:
            _give_up(state, server)
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
    noted = {server: running for server in SERVERS if (running := state.running(server)) is not None}
    for server, running in noted.items():
        if running.is_alive:
            yield True, f"{TITLES[server]} runs as process {running.pid} at {_address(state, server)}"
        else:
            yield False, f"{TITLES[server]}, process {running.pid}, has ended; its log: {state.log(server)}. `sentdist up` starts it again."
    named = [environment.get(name) for name in NAMED_BY]
    if noted and not any((*named, environment.get("RAY_API_SERVER_ADDRESS"))):
        environment.update(state.addresses | {"RAY_ADDRESS": state.ray})
        yield True, "this shell does not know them yet: `source .sentdist/env`. The checks below use them."
    elif noted and named != [state.ray, state.mlflow]:
        others = ", ".join(without_secrets(one or "none") for one in named)
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


def _runs(state: State, server: str, print_line: PrintLine) -> bool:
    """Whether it was started here and runs, at the ports that are asked for. What an ended server left is stopped."""
    running = state.running(server)
    if running is None:
        return False
    if not running.is_alive:
        print_line(f"{TITLES[server]} of an earlier start has ended{_last_line(state, server)}.")
        _give_up(state, server)
        return False
    is_open = server != "mlflow" or state.password_file.exists()
    if not is_open or dict(running.ports) != {name: getattr(state.ports, name) for name in running.ports}:
        places = ", ".join(f"{name} {port}" for name, port in running.ports.items())
        raise ServerError(
            where=TITLES[server], found=f"it running at other ports ({places})" if is_open else f"it running and no {state.password_file}",
            expected="a server as asked for", remedy="Stop it with `sentdist down`, then run this again.",
        )  # fmt: skip
    print_line(f"{TITLES[server]} is up already: {_address(state, server)}")
    return True


def _wait(started: Sequence[str], state: State, hardware: Hardware, print_line: PrintLine) -> None:
    """Wait until all answer; all must still run at the end. Ray that did not start within its 30 s is started again."""
    began = spoke_at = time.monotonic()
    attempts, ready = 1, set[str]()
    while len(ready) < len(started):
        for server in started:
            running = state.running(server)
            if running is None or not running.is_alive:
                if server != "ray" or attempts == RAY_ATTEMPTS or "timed out during startup" not in _log(state, server):
                    raise _failed(state, server, f"that it ended while starting{_last_line(state, server)}")
                print_line("Ray did not start within its 30 s; trying again …")
                _give_up(state, server)
                attempts += 1
                _start(state, server, hardware)
            elif server not in ready and (server != "ray" or "Ray runtime started" in _log(state, server)) and _answers(state, server):
                ready.add(server)
                print_line(f"{TITLES[server]} answers after {time.monotonic() - began:.0f} s.")
        now, waited_for = time.monotonic(), [server for server in started if server not in ready]
        if waited_for and now - began > START_S:
            raise _failed(state, waited_for[0], f"no answer within {START_S:.0f} s")
        if waited_for and now - spoke_at > SAY_EVERY_S:
            spoke_at = now
            print_line(f"Waiting for {listed([TITLES[name] for name in waited_for])}: {now - began:.0f} s of at most {START_S:.0f} …")
        time.sleep(PAUSE_S)


def _failed(state: State, server: str, found: str) -> ServerError:
    where = f"{TITLES[server]} at {_address(state, server)}"
    return ServerError(where=where, found=found, expected="a server that answers", remedy=f"It was stopped. Its log: {state.log(server)}")


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
        return (Port(number=state.ports.mlflow, who="MLflow", variable="SENTDIST_MLFLOW_PORT"),)
    return (
        Port(number=state.ports.ray, who="Ray's head", variable="SENTDIST_RAY_PORT"),
        Port(number=state.ports.dashboard, who="Ray's dashboard", variable="SENTDIST_DASHBOARD_PORT"),
    )


def _check_fit(ports: Sequence[Port]) -> None:
    """Raise ServerError for a port that Ray's workers may use, which would end Ray while it starts, and for equal ports."""
    for port in ports:
        is_twice = [one.number for one in ports].count(port.number) > 1
        if is_twice or port.number in OF_WORKERS:
            raise ServerError(
                where=port.variable, found=f"{port.number} {'twice' if is_twice else 'among the ports of workers'}",
                expected=f"different ports outside {OF_WORKERS[0]}-{OF_WORKERS[-1]}, which Ray's workers use",
                remedy=f"Give {port.who} another: {port.variable}={free_port()} sentdist up",
            )  # fmt: skip


def _answers(state: State, server: str) -> bool:
    """Whether our server answers. Another program on its port gets no request, so that it never sees the token."""
    running, port = state.running(server), state.ports.mlflow if server == "mlflow" else state.ports.dashboard
    if running is None or not running.listens_at(port):
        return False
    if server == "mlflow":
        return answers(f"{state.mlflow}/health")
    return answers(f"{state.dashboard}/api/version", token=state.token_file.read_text().strip())


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
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", HOST]
    command += ["--port", str(state.ports.mlflow)]
    command += ["--backend-store-uri", f"sqlite:///{database}", "--serve-artifacts", "--workers", "1"]
    command += ["--artifacts-destination", str(state.folder / "mlflow-artifacts")]
    return launch("mlflow", command, environment, state.log("mlflow"), ports={"mlflow": state.ports.mlflow}, cwd=state.log("mlflow").parent)


def write_ahead(database: Path) -> None:
    """Enable SQLite's write-ahead log, so that readers and writers do not block each other; the file keeps the setting.

    All processes that use it run on one host. Errors are left to MLflow, which reports them.
    """
    with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
