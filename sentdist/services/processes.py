"""Processes of local servers (start, recognise, stop with all descendants), HTTP replies and free ports."""

from __future__ import annotations

import base64
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from sentdist.files import whole_file

HOST = "127.0.0.1"
MARK = "SENTDIST_SERVER"  # environment variable of a server and of all processes that it starts
END_S = 5.0
OF_WORKERS = range(20_000, 30_000)  # ports of our Ray's workers; Ray's default is 10002 to 19999
LASTING = range(OF_WORKERS.stop, 32_768)  # below the ephemeral ports of Linux and macOS


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server started by `sentdist up`, as noted in a file."""

    name: str
    pid: int
    mark: str  # see MARK; another process with this pid has another mark
    ports: Mapping[str, int]  # by name
    folder: str = ""  # removed with the server
    home: str = ""  # working folder, machine and store for which it was started
    host: str = ""
    store: str = ""

    @property
    def is_alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            environment = process.environ()  # empty at first, and of a zombie
            return process.status() != psutil.STATUS_ZOMBIE and (not environment or environment.get(MARK) == self.mark)
        except psutil.Error:
            return False

    def processes(self) -> list[psutil.Process]:
        """Return the running processes of the server: itself and its descendants, which inherit its mark."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # of another user, or gone
                if one.pid != os.getpid() and one.environ().get(MARK) == self.mark:
                    found.append(one)
        return found

    def listens_at(self, port: int) -> bool:
        """Return whether one of its processes listens there; secrets are sent to no other."""
        for one in self.processes():
            with suppress(psutil.Error, OSError):
                if any(at.status == psutil.CONN_LISTEN and at.laddr.port == port for at in one.net_connections(kind="tcp")):
                    return True
        return False

    def note(self, path: Path) -> None:
        """Write the note file, atomically."""
        with whole_file(path) as part:
            part.write_text(json.dumps(asdict(self)))


def noted(path: Path) -> RunningServer | None:
    """Read a file written by `RunningServer.note`; None if missing or unreadable."""
    try:
        return RunningServer(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def launch(
    name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, *, ports: Mapping[str, int], cwd: Path, folder: str = ""
) -> RunningServer:
    """Start a server in a new session, so that Ctrl-C does not reach it, with a umask that keeps its files private."""
    mark = secrets.token_hex(8)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            start_new_session=True,
            umask=0o077,
        )
    process.returncode = 0  # it outlives this command, which does not wait for it
    return RunningServer(name=name, pid=process.pid, mark=mark, ports=dict(ports), folder=folder)


def end(servers: Iterable[RunningServer]) -> None:
    """Terminate these servers, kill what is left of them after 5 s, and remove their folders.

    Only folders in this user's private one (`ray_folder`) are removed.
    """
    for server in servers:
        if server.is_alive:
            with suppress(psutil.Error):
                root = psutil.Process(server.pid)
                root.terminate()
                _wait_for_end([root])
        left = server.processes()
        for process in left:
            with suppress(psutil.Error):
                process.kill()  # psutil checks that the pid was not reused
        _wait_for_end(left)
        if Path(server.folder).parent.name == f"sentdist-{os.getuid()}":
            shutil.rmtree(server.folder, ignore_errors=True)


def _wait_for_end(processes: list[psutil.Process]) -> None:
    """Wait at most `END_S`; a zombie has ended, for which `psutil.wait_procs` would wait where nothing reaps it."""
    until = time.monotonic() + END_S
    while time.monotonic() < until and any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes):
        time.sleep(0.05)


MOST_BYTES = 10_000
LOOPBACK = (HOST, "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An HTTP reply."""

    status: int
    text: str  # the first 10 kB


def get(url: str, *, authorization: str | None = None, authority: str | None = None, timeout_s: float) -> Reply | None:
    """Send a GET request; return the reply, or None without an answer. Local addresses bypass proxies.

    Args:
        url: may hold a user and password, which are sent if there is no `authorization`, as in MLflow's client.
        authorization: header, not sent to other hosts after a redirect.
        authority: file or folder of CA certificates; None: REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE, else the usual ones.
    """
    import requests  # 0.1 s

    def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if authorization:
            request.headers["Authorization"] = authorization
        return request

    try:
        proxies = {"no_proxy": "*"} if urlsplit(url).hostname in LOOPBACK else None
        auth = authorize if authorization else None
        with requests.get(url, auth=auth, verify=authority or True, timeout=timeout_s, stream=True, proxies=proxies) as response:
            return Reply(status=response.status_code, text=response.raw.read(MOST_BYTES, decode_content=True).decode(errors="replace"))
    except (OSError, ValueError):  # requests' errors are OSErrors; ValueError: not an address
        return None


def ray_version(reply: Reply | None) -> str | None:
    """Return the version in a Ray dashboard's reply to /api/version, or None for another reply."""
    try:
        return None if reply is None or reply.status != 200 else str(json.loads(reply.text)["ray_version"])
    except (ValueError, KeyError, TypeError):
        return None


def basic_auth_header(user: str, password: str) -> str:
    """Return the Authorization header of a user and password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def free_port() -> int:
    """Return a free port outside the ephemeral range, since a server may take a minute until it listens."""
    while True:
        number = random.SystemRandom().choice(LASTING)
        if is_free(number):
            return number


def is_free(port: int) -> bool:
    """Return whether a server can listen at this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
