"""Start, find and stop Ray's head and MLflow on 127.0.0.1, each with a secret."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterator, MutableMapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sentdist.errors import ServerError
from sentdist.services.processes import HOST, OF_WORKERS, RunningServer, end, free_port, get, is_free, launch
from sentdist.services.state import SERVERS, USER, State, make_secret, ray_folder
from sentdist.text import PrintLine, without_secrets

START_S = 300.0  # a busy machine with a slow disk takes 60 s
PAUSE_S = 0.3
ANSWER_S = 3.0
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
    """Start the servers that do not run, and return when both answer.

    Raises:
        ServerError: a port is in use; a server ended while starting, or does not answer within 5 minutes.
    """
    state.prepare()
    to_start = [server for server in SERVERS if not _runs(state, server, print_line)]
    if "ray" not in to_start and hardware != Hardware():
        print_line("Ray keeps the resources that it was started with: run `sentdist down` first to change them.")
    for name, port in state.ports.items():
        if ("mlflow" if name == "mlflow" else "ray") in to_start and not is_free(port):
            remedy = f"Stop what uses it, or choose another port: SENTDIST_{name.upper()}_PORT={free_port()} sentdist up"
            raise ServerError(where=f"port {port} for {name}", found="another program", expected="a free port", remedy=remedy)
    state.write_env()
    try:
        for server in to_start:
            print_line(f"Starting {TITLES[server]} at {_address(state, server)} …")
            _start(state, server, hardware)
        _wait(to_start, state, print_line)
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
    for server in SERVERS:
        was_alive = (running := state.running(server)) is not None and bool(running.processes())
        _give_up(state, server)
        print_line(f"{TITLES[server]} stopped." if was_alive else f"{TITLES[server]} is not running.")


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


def _runs(state: State, server: str, print_line: PrintLine) -> bool:
    """Whether it was started here and runs, at the ports that are asked for. What an ended server left is stopped."""
    running = state.running(server)
    if running is None or not running.is_alive:
        _give_up(state, server)
        return False
    has_password = server != "mlflow" or state.password_file.exists()
    if not has_password or any(state.ports[name] != port for name, port in running.ports.items()):
        found = f"it running at {dict(running.ports)}" if has_password else f"it running and no {state.password_file}"
        remedy = "Stop it with `sentdist down`, then run this again."
        raise ServerError(where=TITLES[server], found=found, expected="a server as asked for", remedy=remedy)
    print_line(f"{TITLES[server]} is up already: {_address(state, server)}")
    return True


def _wait(started: list[str], state: State, print_line: PrintLine) -> None:
    """Wait until all answer; all must still run at the end."""
    began, ready = time.monotonic(), set[str]()
    while len(ready) < len(started):
        for server in started:
            running, waited_s = state.running(server), time.monotonic() - began
            if running is None or not running.is_alive:
                raise _failed(state, server, f"that it ended while starting ({_log(state, server)})")
            if waited_s > START_S:
                raise _failed(state, server, f"no answer within {START_S:.0f} s")
            if server not in ready and _answers(state, server, running):
                ready.add(server)
                print_line(f"{TITLES[server]} answers after {waited_s:.0f} s.")
        time.sleep(PAUSE_S)


def _failed(state: State, server: str, found: str) -> ServerError:
    where = f"{TITLES[server]} at {_address(state, server)}"
    return ServerError(where=where, found=found, expected="a server that answers", remedy=f"It was stopped. Its log: {state.log(server)}")


def _log(state: State, server: str) -> str:
    """The last line of its log, or the last about a process that ended."""
    lines = [line.strip() for line in state.log(server).read_text(errors="replace").splitlines() if line.strip()]
    return ([line for line in lines if "exit code" in line] or lines or [""])[-1]


def _give_up(state: State, server: str) -> None:
    if (running := state.running(server)) is not None:
        end([running])
        state.note_file(server).unlink(missing_ok=True)


def _address(state: State, server: str) -> str:
    return state.mlflow if server == "mlflow" else f"{state.ray}, dashboard {state.dashboard}"


def _answers(state: State, server: str, running: RunningServer) -> bool:
    """Whether our server answers. Another program on its port gets no request, so that it never sees the token."""
    if not running.listens_at(state.ports["mlflow" if server == "mlflow" else "dashboard"]):
        return False
    if server == "mlflow":
        reply = get(f"{state.mlflow}/health", timeout_s=ANSWER_S)
    else:
        token = state.token_file.read_text().strip()
        reply = get(f"{state.dashboard}/api/version", authorization=f"Bearer {token}", timeout_s=ANSWER_S)
    is_up = server == "mlflow" or "Ray runtime started" in state.log(server).read_text(errors="replace")
    return is_up and reply is not None and reply.status == 200


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
    command += ["--port", str(state.ports["ray"]), "--dashboard-host", HOST, "--dashboard-port", str(state.ports["dashboard"])]
    command += ["--include-dashboard", "true"]  # with this option, a dashboard whose port is taken ends Ray at once
    command += ["--dashboard-agent-listen-port", "0", "--ray-client-server-port", str(free_port())]
    command += ["--min-worker-port", str(OF_WORKERS[0]), "--max-worker-port", str(OF_WORKERS[-1])]
    command += ["--temp-dir", str(folder), "--disable-usage-stats"]
    command += ["--object-store-memory", str(hardware.object_store_bytes)]
    for option, count in (("--num-cpus", hardware.cpus), ("--num-gpus", hardware.gpus)):
        command += [option, str(count)] if count is not None else []
    environment = state.environment(os.environ) | ({} if hardware.metrics else METRICS_OFF)
    ports = {name: state.ports[name] for name in ("ray", "dashboard")}
    return launch("ray", command, environment, state.log("ray"), ports=ports, cwd=state.home, folder=str(folder))


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
    command += ["--port", str(state.ports["mlflow"])]
    command += ["--backend-store-uri", f"sqlite:///{database}", "--serve-artifacts", "--workers", "1"]
    command += ["--artifacts-destination", str(state.folder / "mlflow-artifacts")]
    return launch(
        "mlflow", command, environment, state.log("mlflow"), ports={"mlflow": state.ports["mlflow"]}, cwd=state.log("mlflow").parent
    )


def write_ahead(database: Path) -> None:
    """Enable SQLite's write-ahead log, so that readers and writers do not block each other; the file keeps the setting.

    All processes that use it run on one host. Errors are left to MLflow, which reports them.
    """
    with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
