"""Ports of 127.0.0.1: whether one is free, who has it, whether a server answers there."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

from sentdist.errors import ServerError
from sentdist.services.asking import get

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
