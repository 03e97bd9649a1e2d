"""Which cluster a command talks to is never guessed among several, and one that does not answer is reported in seconds, with the reason."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from sentdist.errors import RecipeError, ResourceError
from sentdist.execution.cluster import address as cluster_address
from sentdist.execution.cluster import connection
from sentdist.execution.cluster.address import ChosenHead, HeadAnswer, LocalNode, ask, choose, refusal
from sentdist.execution.cluster.connection import check_auth_mode, connect

MINE = LocalNode(address="127.0.0.1:6379", node_id="aa")
SECOND = LocalNode(address="127.0.0.1:6479", node_id="bb")
CHOSEN = ChosenHead(address="127.0.0.1:6379", because="named by RAY_ADDRESS")


class _Gate(grpc.GenericRpcHandler):
    """Answers every call as a Ray head does that was started with this token, and has no node on this machine."""

    def __init__(self, token: str) -> None:
        self._token = token

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if dict(context.invocation_metadata()).get("authorization") != f"Bearer {self._token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
        return b""


@pytest.fixture
def head() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[_Gate("right")])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture(params=["closed", "deaf"])
def wrong(request: pytest.FixtureRequest) -> Iterator[str]:
    """Addresses of what is no Ray head: nobody, one that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        if request.param == "closed":
            listening.close()
        yield address


def test_each_trouble_is_told_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    answers: tuple[HeadAnswer, ...] = ("nothing", "no token", "refused", "foreign", "no node here")
    troubles = {str(refusal(CHOSEN, answer)) for answer in answers}
    assert len(troubles) == len(answers) and all(CHOSEN.address in trouble for trouble in troubles)
    assert sum("/nowhere/token" in trouble for trouble in troubles) == 2 and refusal(CHOSEN, "good") is None


def test_the_token_is_tried_before_ray_is(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("right\n")
    given: tuple[tuple[dict[str, str], HeadAnswer], ...] = (
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "right\n"}, "no node here"),  # with the line's end of a file
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "wrong"}, "refused"),
        ({"RAY_AUTH_MODE": "disabled"}, "refused"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/nowhere/token"}, "no token"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}, "no node here"),
    )
    for environment, answer in given:
        for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert ask(head) == answer, environment


def test_a_wrong_address_ends_within_seconds(wrong: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Ray, which tries for minutes, is not asked to join."""
    joined: list[str] = []
    monkeypatch.setattr(connection.ray, "init", lambda address, **options: joined.append(address))
    monkeypatch.setenv("RAY_ADDRESS", wrong)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(cluster_address, "ANSWER_S", 1.0)
    with pytest.raises(ResourceError, match=f"{wrong} .named by RAY_ADDRESS.: found (nothing that answers|a server that)"):
        connect()
    assert not joined
    assert capfd.readouterr().err == ""  # no lines of Ray's C++ parts


def test_only_ray_nodes_of_the_user_in_this_network_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    raylet = ["/opt/ray/raylet", "--gcs-address=10.0.0.1:6379", "--node_id=aa"]
    for words, uid, network, is_mine in (
        (raylet, 0, "ours", True),
        (raylet, 1, "ours", False),
        (raylet, 0, "a container's", False),
        (["/opt/ray/raylet", "--node_id=aa"], 0, "ours", False),
        (["vi", *raylet], 0, "ours", False),
        ([], 0, "ours", False),
    ):
        process = SimpleNamespace(pid=7, info={"cmdline": words, "uids": SimpleNamespace(real=os.getuid() + uid)})
        monkeypatch.setattr("psutil.process_iter", lambda fields, process=process: [process])
        monkeypatch.setattr(cluster_address, "_shares_our_network", lambda pid, network=network: network == "ours")
        assert cluster_address.local_nodes() == [LocalNode(address="10.0.0.1:6379", node_id="aa")] * is_mine
    of_one_command = [raylet[0], "--raylet_socket_name=/tmp/sd-own-ab12/session_1/sockets/raylet", *raylet[1:]]
    process = SimpleNamespace(pid=7, info={"cmdline": of_one_command, "uids": None})
    monkeypatch.setattr("psutil.process_iter", lambda fields: [process])
    assert [node.is_private for node in cluster_address.local_nodes()] == [True]


def test_the_named_cluster_is_taken_else_the_only_one_and_nothing_is_guessed() -> None:
    private = LocalNode(address="10.0.0.9:6379", node_id="cc", is_private=True)  # of one command, see `own_cluster`
    for named, local, address in (
        ("10.0.0.5:6379", [MINE, SECOND], "10.0.0.5:6379"),
        ("head.example.org:6379", [MINE], "head.example.org:6379"),
        (None, [MINE, private], "127.0.0.1:6379"),
        ("", [MINE], "127.0.0.1:6379"),
        ("auto", [MINE, MINE], "127.0.0.1:6379"),  # two nodes of one cluster
    ):
        assert choose(named, local).address == address
    for named, local, reported in (
        (None, [], "no cluster of yours"),
        (None, [private], "no cluster of yours"),
        (None, [MINE, SECOND], r"2 clusters on this machine \(127\.0\.0\.1:6379, 127\.0\.0\.1:6479\)"),
        ("auto", [MINE, SECOND], "2 clusters"),
        ("http://127.0.0.1:8265", [MINE], "RAY_API_SERVER_ADDRESS"),
        ("ray://127.0.0.1:10001", [MINE], "HOST:PORT"),
        ("127.0.0.1", [MINE], "HOST:PORT"),
        ("127.0.0.1:head", [MINE], "HOST:PORT"),
    ):
        with pytest.raises(ResourceError, match=reported):
            choose(named, local)


def test_the_auth_mode_is_never_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (None, "", "maybe", "Token"):
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
        if mode is not None:
            monkeypatch.setenv("RAY_AUTH_MODE", mode)
        with pytest.raises(RecipeError, match="RAY_AUTH_MODE"):
            connect()
    monkeypatch.setattr(connection.ray, "is_initialized", lambda: True)
    connect()  # who has joined already is asked for nothing
    for mode in ("token", "disabled"):
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
        check_auth_mode()
