"""Servers as processes: started in a session of their own, known again by a later command, ended with all that they started."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from sentdist.durable import whole_file

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
