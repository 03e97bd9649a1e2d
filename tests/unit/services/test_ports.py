"""Ports of `sentdist up`: which are refused, and which are chosen."""

from __future__ import annotations

import itertools
import socket
import sys
from pathlib import Path

import pytest

from sentdist.errors import ServerError
from sentdist.services.processes import free_port
from sentdist.services.servers import Hardware, up
from sentdist.services.state import state_of
from tests.support.listening import FREE


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(FREE, 2)))
def test_one_port_for_two_servers_is_refused_before_anything_is_written(one: str, other: str, tmp_path: Path) -> None:
    state = state_of(tmp_path, asked={**FREE, other: FREE[one]}, store=None)
    reported = (
        rf"sentdist up --{one}-port and --{other}-port: found {FREE[one]} twice; .* --{other}-port \d+ \(SENTDIST_{other.upper()}_PORT"
    )
    with pytest.raises(ServerError, match=reported):
        up(state, Hardware(), print)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("server", FREE)
def test_a_port_of_rays_workers_is_refused_before_anything_is_written(server: str, tmp_path: Path) -> None:
    """Ray ended while it started, and the command named no reason."""
    with pytest.raises(ServerError, match=rf"sentdist up --{server}-port: found 26379, .* outside 20000-29999"):
        up(state_of(tmp_path, asked={**FREE, server: 26379}, store=None), Hardware(), print)
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_chosen_is_none_that_the_system_gives_to_connections() -> None:
    """Ray's client server listens half a minute after its port was chosen, and if it cannot, Ray ends."""
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()) if sys.platform == "linux" else (49152, 0)
    found = {free_port() for _ in range(20)}
    assert len(found) > 1 and min(found) > 29_999 and max(found) < first
    taken = [socket.create_server(("127.0.0.1", number)) for number in found]
    for one in taken:
        one.close()
