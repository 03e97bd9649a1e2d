"""Which cluster a command talks to is never guessed among several, and one that does not answer is reported in seconds, with the reason."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import ray
from ray.exceptions import RayTaskError, WorkerCrashedError

from sentdist.errors import RecipeError, ResourceError
from sentdist.run import address as cluster_address
from sentdist.run import connection
from sentdist.run import losses as leaving
from sentdist.run.address import ChosenHead, HeadAnswer, LocalNode, ask, check, choose
from sentdist.run.connection import cause_of, check_auth_mode, connect, reason
from sentdist.store.local_storage import maker_of, scratch_name

MINE = LocalNode("127.0.0.1:6379")
SECOND = LocalNode("127.0.0.1:6479")
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


def test_each_trouble_names_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: tuple[HeadAnswer, ...] = ("nothing", "no token", "refused", "foreign", "no node here")
    troubles = set()
    for answer in answers:
        monkeypatch.setattr(cluster_address, "ask", lambda address, answer=answer: answer)
        with pytest.raises(ResourceError, match=CHOSEN.address) as trouble:
            check(CHOSEN)
        troubles.add(trouble.value.found)
    assert len(troubles) == len(answers)
    monkeypatch.setattr(cluster_address, "ask", lambda address: "good")
    check(CHOSEN)


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


def test_only_ray_nodes_of_the_user_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    raylet = ["/opt/ray/raylet", "--gcs-address=10.0.0.1:6379"]
    for words, uid, is_mine in (
        (raylet, 0, True),
        (raylet, 1, False),
        (["/opt/ray/raylet"], 0, False),
        (["vi", *raylet], 0, False),
        ([], 0, False),
    ):
        process = SimpleNamespace(info={"cmdline": words, "uids": SimpleNamespace(real=os.getuid() + uid)})
        monkeypatch.setattr("psutil.process_iter", lambda fields, process=process: [process])
        assert cluster_address.local_nodes() == [LocalNode("10.0.0.1:6379")] * is_mine
    of_one_command = [raylet[0], "--raylet_socket_name=/tmp/sd-own-ab12/session_1/sockets/raylet", *raylet[1:]]
    process = SimpleNamespace(info={"cmdline": of_one_command, "uids": None})
    monkeypatch.setattr("psutil.process_iter", lambda fields: [process])
    assert [node.is_private for node in cluster_address.local_nodes()] == [True]


def test_the_named_cluster_is_taken_else_the_only_one_and_nothing_is_guessed() -> None:
    private = LocalNode("10.0.0.9:6379", is_private=True)  # of one command, see `own_cluster`
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


ROWS = [
    {"Alive": True, "NodeID": "aa", "NodeManagerAddress": "10.0.0.2", "Resources": {"CPU": 8.0, "GPU": 2.0}},
    {"Alive": False, "NodeID": "bb", "NodeManagerAddress": "10.0.0.3", "Resources": {"CPU": 8.0}},
    {"Alive": True, "NodeID": "cc", "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 4.0}},
]


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Nodes that a head was notified will go, and until when (ms since 1970); it refuses the one that is called dd."""
    asked: list[tuple[str, int]] = []

    def drain_node(gcs_address: str, node: str, *, why: str, deadline_ms: int) -> str | None:
        asked.append((node, deadline_ms))
        return "it is busy" if node == "dd" else None

    monkeypatch.setattr(leaving, "drain_node", drain_node)
    monkeypatch.setattr(leaving.ray, "nodes", lambda: ROWS)
    monkeypatch.setattr(leaving.ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="10.0.0.1:6379", get_node_id=lambda: "aa"))
    return asked


def test_the_living_hosts_that_go_are_reported_with_the_time_that_is_left(
    reported: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for everywhere, nodes, addresses in ((False, ["aa"], ["10.0.0.2"]), (True, ["aa", "cc"], ["10.0.0.1", "10.0.0.2"])):
        reported.clear()
        before = time.time()
        assert leaving.leave(within_s=90.0, everywhere=everywhere) == addresses
        assert [node for node, _ in reported] == nodes
        assert all(before + 89 < deadline / 1000 < time.time() + 91 for _, deadline in reported)
    monkeypatch.setattr(leaving.ray, "nodes", lambda: [*ROWS, ROWS[0] | {"NodeID": "dd", "NodeManagerAddress": "10.0.0.9"}])
    with pytest.raises(ResourceError, match=r"10\.0\.0\.9.*it is busy"):
        leaving.leave(within_s=90.0, everywhere=True)


def test_what_a_killed_process_left_of_its_cluster_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of hundreds of MB stayed in /tmp; those of living processes, of others and of unknown ones stay."""
    mine = scratch_name("cluster")
    dead = mine.replace(f"~{os.getpid()}~", f"~{2**22 + 1}~")  # beyond the largest process id of Linux
    names = {"living": mine, "dead": dead, "elsewhere": f"sentdist-cluster~other-machine~{2**22 + 1}~00000000", "unknown": "session"}
    for name, marked in names.items():
        (tmp_path / f"sd-own-{name}").mkdir()
        (tmp_path / f"sd-own-{name}" / marked).touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / dead).touch()
    (tmp_path / "sd-own-link").symlink_to(tmp_path / "outside")
    monkeypatch.setattr(cluster_address, "PLACE", str(tmp_path))
    monkeypatch.setattr(ray, "init", lambda **asked: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with cluster_address.own_cluster(cpus=1):
        (ours,) = {path.name for path in tmp_path.iterdir()} - {"outside", "sd-own-link", *(f"sd-own-{name}" for name in names)}
        assert [maker_of(path.name) for path in (tmp_path / ours).iterdir()] == ["living"]
    left = {"outside", "sd-own-link", "sd-own-living", "sd-own-elsewhere", "sd-own-unknown"}
    assert {path.name for path in tmp_path.iterdir()} == left and (tmp_path / "outside" / dead).exists()


def test_the_reason_of_a_loss_shows_no_password() -> None:
    lost = WorkerCrashedError()
    assert reason(lost).startswith("WorkerCrashedError: ")
    assert reason(OSError("\n no way to s3://me:secret@host/bucket\nmore")) == "OSError: no way to s3://host/bucket"
    assert reason(OSError()) == "OSError"


def test_an_error_is_that_of_the_body() -> None:
    error = ValueError("of the body")
    once = RayTaskError("inner", "trace", error)
    assert cause_of(RayTaskError("outer", "trace", once)) is error and cause_of(once) is error and cause_of(error) is error
