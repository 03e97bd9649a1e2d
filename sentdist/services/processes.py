"""Processes of local servers (start, recognise, stop with all descendants), their HTTP replies and ports."""

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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from sentdist.errors import ServerError
from sentdist.files import whole_file

MARK = "SENTDIST_SERVER"  # environment variable of a server and of all processes that it starts
CLOCK_S = 2.0  # tolerance between two readings of a process's start time
END_S = 5.0


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server started by `sentdist up`, as noted in a file."""

    name: str
    pid: int
    began: float  # Unix time in seconds; differs if the pid was reused
    mark: str  # see MARK
    ports: Mapping[str, int] = field(default_factory=dict)  # by name
    folder: str = ""  # removed with the server
    home: str = ""  # working folder, machine and store for which it was started
    host: str = ""
    store: str = ""

    @property
    def is_alive(self) -> bool:
        return self._process() is not None

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            # If the system's clock was set meanwhile, the times differ; the mark decides.
            is_ours = abs(process.create_time() - self.began) < CLOCK_S or process.environ().get(MARK) == self.mark
            return process if is_ours else None
        except psutil.Error:
            return None

    def _family(self) -> list[psutil.Process]:
        """The server, if running, and its descendants, without reading the environment of every process."""
        root = self._process()
        try:
            return [] if root is None else [root, *root.children(recursive=True)]
        except psutil.Error:
            return [] if root is None else [root]

    def processes(self) -> list[psutil.Process]:
        """Return the running processes of the server: itself, its descendants, and all with its mark."""
        found = {one.pid: one for one in self._family()}
        for one in psutil.process_iter():
            try:
                if one.status() != psutil.STATUS_ZOMBIE and one.pid != os.getpid() and one.environ().get(MARK) == self.mark:
                    found.setdefault(one.pid, one)
            except (psutil.Error, OSError):  # of another user, or gone
                continue
        return list(found.values())

    def listens_at(self, port: int) -> bool:
        """Return whether one of its processes listens there; secrets are sent to no other."""
        for one in self._family():
            try:
                found = one.net_connections(kind="tcp")
            except (psutil.Error, OSError):
                continue
            if any(at.status == psutil.CONN_LISTEN and at.laddr.port == port for at in found):
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
    name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, *, ports: Mapping[str, int], folder: str = "",
    cwd: Path | None = None,
) -> RunningServer:  # fmt: skip
    """Start a server in a new session, so that Ctrl-C does not reach it, with a umask that keeps its files private."""
    mark = secrets.token_hex(8)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**environment, MARK: mark}, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=cwd,
            start_new_session=True, umask=0o077,
        )  # fmt: skip
    process.returncode = 0  # it outlives this command, which does not wait for it
    try:
        began = psutil.Process(process.pid).create_time()
    except psutil.Error:  # it ended at once: its log says why
        began = 0.0
    return RunningServer(name=name, pid=process.pid, began=began, mark=mark, ports=dict(ports), folder=folder)


def end(servers: Iterable[RunningServer]) -> None:
    """Terminate these servers, kill what is left of them after 5 s, and remove their folders.

    Only folders in this user's private one (`ray_folder`) are removed.
    """
    servers = list(servers)
    known = [process for server in servers for process in server.processes()]
    roots = [process for server in servers if (process := server._process()) is not None]
    for process in roots:
        with suppress(psutil.Error):
            process.terminate()
    _wait_for_end(roots)
    left = {*known, *(process for server in servers for process in server.processes())}
    for process in left:
        with suppress(psutil.Error):
            process.kill()  # psutil checks that the pid was not reused
    _wait_for_end(left)
    for server in servers:
        if Path(server.folder).parent.name == f"sentdist-{os.getuid()}":
            shutil.rmtree(server.folder, ignore_errors=True)


def _wait_for_end(processes: Iterable[psutil.Process]) -> None:
    """Wait at most `END_S`; a zombie has ended, which `psutil.wait_procs` would wait for where nothing reaps it."""
    until, left = time.monotonic() + END_S, list(processes)
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


MOST_BYTES = 10_000
LOOPBACK = ("127.0.0.1", "localhost", "::1")


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
        timeout_s: in seconds.
    """
    import requests  # 0.1 s

    def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if authorization:
            request.headers["Authorization"] = authorization
        return request

    try:
        is_local = urlsplit(url).hostname in LOOPBACK
        with requests.get(
            url, auth=authorize if authorization else None, verify=authority or True, timeout=timeout_s, stream=True,
            proxies={"no_proxy": "*"} if is_local else None,
        ) as response:  # fmt: skip
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


HOST = "127.0.0.1"
ANSWER_S = 3.0
OF_WORKERS = range(20_000, 30_000)  # ports of our Ray's workers; Ray's default is 10002 to 19999
LASTING = range(OF_WORKERS.stop, 32_768)  # below the ephemeral ports of Linux and macOS


@dataclass(frozen=True, kw_only=True)
class Port:
    """A port on 127.0.0.1 that a server of ours needs."""

    number: int
    who: str  # the server, for messages
    variable: str  # of the environment, which sets another port

    def need(self) -> None:
        """Raise ServerError if the port is not free."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self.number))
            except OSError as error:
                raise ServerError(
                    where=f"port {self.number}, wanted by {self.who}", found=str(error.strerror), expected="a free port",
                    remedy=f"Stop what uses it, or choose another port: {self.variable}={free_port()} sentdist up",
                ) from None  # fmt: skip


def free_port() -> int:
    """Return a free port outside the ephemeral range, since a server may take a minute until it listens."""
    while True:
        number = random.SystemRandom().choice(LASTING)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, number))
            return number


def answers(url: str, *, token: str | None = None) -> bool:
    """Return whether a server answers with status 200 within 3 s."""
    reply = get(url, authorization=f"Bearer {token}" if token else None, timeout_s=ANSWER_S)
    return reply is not None and reply.status == 200
