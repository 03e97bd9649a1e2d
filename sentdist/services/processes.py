"""Servers as processes: started in a session of their own, known again by a later command, ended with all that they started."""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import secrets
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from email.message import Message
from pathlib import Path
from typing import IO
from urllib.parse import SplitResult, unquote, urlsplit

import psutil

from sentdist.errors import ServerError
from sentdist.files import whole_file

MARK = "SENTDIST_SERVER"  # in the environment of a server and of everything that it starts
CLOCK_S = 2.0  # how far two answers of the system may differ about when a process began
END_S = 5.0


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server that `sentdist up` started, as it is noted in a file.

    began: seconds since 1970, by the system; it differs where another process has the number by now. ports: by name.
    folder: what goes with the server, or "". mark: see MARK. home, host: the folder and the machine that it was started for, store: the
    store that it was given.
    """

    name: str
    pid: int
    began: float
    mark: str
    ports: Mapping[str, int] = field(default_factory=dict)
    folder: str = ""
    home: str = ""
    host: str = ""
    store: str = ""

    @property
    def is_alive(self) -> bool:
        return self._process() is not None

    def option(self, name: str) -> str | None:
        """What follows `name` in the command that started it; None where it stands nowhere, or nothing lives."""
        process = self._process()
        try:
            command = [] if process is None else process.cmdline()
        except psutil.Error:
            command = []
        return command[command.index(name) + 1] if name in command else None

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            # Where the system's clock was set meanwhile, the time is another one, and the mark tells.
            is_ours = abs(process.create_time() - self.began) < CLOCK_S or process.environ().get(MARK) == self.mark
            return process if is_ours else None
        except psutil.Error:
            return None

    def _family(self) -> list[psutil.Process]:
        """The server, if it lives, and its descendants; without a look at the environment of every process."""
        root = self._process()
        try:
            return [] if root is None else [root, *root.children(recursive=True)]
        except psutil.Error:
            return [] if root is None else [root]

    def processes(self) -> list[psutil.Process]:
        """The server itself, if it lives, and all that it started and that still lives: its descendants, and what has its mark."""
        found = {one.pid: one for one in self._family()}
        for one in psutil.process_iter():
            try:
                if one.status() != psutil.STATUS_ZOMBIE and one.pid != os.getpid() and one.environ().get(MARK) == self.mark:
                    found.setdefault(one.pid, one)
            except (psutil.Error, OSError):  # of another user, or gone
                continue
        return list(found.values())

    def listens_at(self, port: int) -> bool:
        """Whether one of its processes listens there: a secret is for no other."""
        for one in self._family():
            try:
                found = one.net_connections(kind="tcp")
            except (psutil.Error, OSError):
                continue
            if any(at.status == psutil.CONN_LISTEN and at.laddr.port == port for at in found):
                return True
        return False

    def note(self, path: Path) -> None:
        """Write it down, whole or not at all."""
        with whole_file(path) as part:
            part.write_text(json.dumps(asdict(self)))


def noted(path: Path) -> RunningServer | None:
    """What a file of `RunningServer.note` says; None if there is none, or none that can be read."""
    try:
        return RunningServer(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def launch(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    ports: Mapping[str, int],
    folder: str = "",
    cwd: Path | None = None,
) -> RunningServer:
    """Start a server in a session of its own, so that Ctrl-C here does not reach it, and with files that only its owner reads."""
    mark = secrets.token_hex(8)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
            cwd=cwd,
        )
    process.returncode = 0  # it goes on when this command ends, and nobody here waits for it
    try:
        began = psutil.Process(process.pid).create_time()
    except psutil.Error:  # it ended at once: its log says why
        began = 0.0
    return RunningServer(name=name, pid=process.pid, began=began, mark=mark, ports=dict(ports), folder=folder)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end(servers: Iterable[RunningServer]) -> None:
    """Ask these servers to end, give them 5 s together, then end by force what is left of each; their folders go.

    A folder goes only from the private one of this user (`ray_folder`), whatever a note says.
    """
    servers = list(servers)
    known = {server.name: server.processes() for server in servers}
    roots = [process for server in servers if (process := server._process()) is not None]
    for process in roots:
        try:
            process.terminate()
        except psutil.Error:
            continue
    until = time.monotonic() + END_S
    while time.monotonic() < until and any(server.is_alive for server in servers):
        time.sleep(0.1)
    left = [process for server in servers for process in (*known[server.name], *server.processes())]
    for process in left:
        try:
            process.kill()  # psutil looks first whether the number is still that process
        except psutil.Error:
            continue
    until = time.monotonic() + END_S
    while time.monotonic() < until and any(_lives(process) for process in left):
        time.sleep(0.05)
    for server in servers:
        if Path(server.folder).parent.name == f"sentdist-{os.getuid()}":
            shutil.rmtree(server.folder, ignore_errors=True)


MOST_BYTES = 10_000
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """status: of HTTP. text: the first 10 kB."""

    status: int
    text: str


def get(url: str, *, authorization: str | None = None, authority: str | None = None, timeout_s: float) -> Reply | None:
    """What a server answers; None if none does. No proxy is asked about this machine, and no other host is shown `authorization`.

    A user and password in the address are shown to the server where no `authorization` is given, as MLflow's own client does.
    authority: file or folder of the certificates that vouch for servers; None: those of REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE, as for Ray's
    and MLflow's own clients, else the system's.
    """
    if not url.startswith(("http://", "https://")):
        return None
    try:
        parts = urlsplit(url)
        proxies = urllib.request.ProxyHandler({} if parts.hostname in LOOPBACK else None)
        shown = authorization or _login(parts)
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        request = urllib.request.Request(plain, headers={"Authorization": shown} if shown else {})
        with urllib.request.build_opener(proxies, _SecretsStay, _trusting(authority)).open(request, timeout=timeout_s) as response:
            return Reply(status=response.status, text=response.read(MOST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(status=error.code, text="")
    except (OSError, ValueError, http.client.HTTPException):
        return None


def ray_version(reply: Reply | None) -> str | None:
    """What a dashboard of Ray answers at /api/version; None if it is no such answer."""
    try:
        return None if reply is None or reply.status != 200 else str(json.loads(reply.text)["ray_version"])
    except (ValueError, KeyError, TypeError):
        return None


def basic_auth_header(user: str, password: str) -> str:
    """How HTTP shows a user and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _trusting(authority: str | None) -> urllib.request.HTTPSHandler:
    place = authority or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or None
    is_folder = place is not None and os.path.isdir(place)
    context = ssl.create_default_context(capath=place if is_folder else None, cafile=None if is_folder else place)
    return urllib.request.HTTPSHandler(context=context)


def _login(parts: SplitResult) -> str | None:
    return basic_auth_header(unquote(parts.username), unquote(parts.password)) if parts.username and parts.password else None


class _SecretsStay(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        """urllib would send the secret along, wherever the answer points."""
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if redirected is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            redirected.remove_header("Authorization")
        return redirected


HOST = "127.0.0.1"
ANSWER_S = 3.0
OF_WORKERS = range(20_000, 30_000)  # which the workers of our Ray listen at; those of others usually at 10002 to 19999
LASTING = range(OF_WORKERS.stop, 32_768)  # up to what Linux and macOS give to connections


@dataclass(frozen=True, kw_only=True)
class Port:
    """number: of 127.0.0.1. who: who listens there, for messages. option: which chooses another, of `command`."""

    number: int
    who: str
    option: str
    command: str = "sentdist up"

    @property
    def variable(self) -> str:
        return f"SENTDIST_{self.option.removeprefix('--').replace('-', '_').upper()}"

    def need(self) -> None:
        """Refuse a port that somebody listens at.

        Raises:
            ServerError: with who that is.
        """
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self.number))
                return
            except OSError as error:
                trouble = error
        taken = f"it in use by {_owner(self.number)}" if trouble.errno != 13 else "that only root may listen there"
        raise ServerError(
            where=f"port {self.number}, wanted by {self.who}",
            found=taken,
            expected="a free port",
            remedy=f"End that, or choose another port: {self.command} {self.option} {free_port()}"
            + (f" ({self.variable} does the same)." if self.command == "sentdist up" else "."),
        )


def free_port() -> int:
    """A port that is free now and that the system gives to no connection: a server may take a minute before it listens there."""
    for number in random.SystemRandom().sample(LASTING, 50):
        if _is_free(number):
            return number
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def _is_free(number: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, number))
        except OSError:
            return False
        return True


def answers(url: str, *, token: str | None = None) -> bool:
    """Whether a server of ours is there: status 200 within 3 s."""
    reply = get(url, authorization=f"Bearer {token}" if token else None, timeout_s=ANSWER_S)
    return reply is not None and reply.status == 200


def _owner(number: int) -> str:
    """The process that listens there, as far as this user may know."""
    import psutil

    for process in psutil.process_iter(["name"]):
        try:
            connections = process.net_connections(kind="tcp")
        except (psutil.Error, OSError):
            continue
        if any(one.status == psutil.CONN_LISTEN and one.laddr.port == number for one in connections):
            return f"process {process.pid} ({process.info['name']})"
    return "another program"
