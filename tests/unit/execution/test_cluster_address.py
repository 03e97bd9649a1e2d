"""Which cluster a command talks to is never guessed among several, and one that does not answer is reported in seconds, with the reason."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import ray

from sentdist.errors import RecipeError, ResourceError
from sentdist.execution.cluster import address as cluster_address
from sentdist.execution.cluster import connection
from sentdist.execution.cluster.address import ChosenHead, HeadAnswer, LocalNode, ask, choose, refusal
from sentdist.execution.cluster.connection import connect
from sentdist.execution.health import examine

MINE = LocalNode(address="127.0.0.1:6379", node_id="aa")
SECOND = LocalNode(address="127.0.0.1:6479", node_id="bb")
CHOSEN = ChosenHead(address="127.0.0.1:6379", because="named by RAY_ADDRESS")


@pytest.mark.parametrize(
    ("named", "local", "address"),
    [
        ("10.0.0.5:6379", [], "10.0.0.5:6379"),
        ("10.0.0.5:6379", [MINE, SECOND], "10.0.0.5:6379"),
        ("head.example.org:6379", [MINE], "head.example.org:6379"),
        (None, [MINE], "127.0.0.1:6379"),
        ("", [MINE], "127.0.0.1:6379"),
        ("auto", [MINE, MINE], "127.0.0.1:6379"),  # two nodes of one cluster
    ],
)
def test_the_named_cluster_is_taken_else_the_only_one(named: str | None, local: list[LocalNode], address: str) -> None:
    assert choose(named, local).address == address


@pytest.mark.parametrize(
    ("named", "local", "reported"),
    [
        (None, [], r"no cluster of yours on this machine.*cluster/README\.md"),
        (None, [MINE, SECOND], r"2 clusters on this machine \(127\.0\.0\.1:6379, 127\.0\.0\.1:6479\).*export RAY_ADDRESS="),
        ("auto", [MINE, SECOND], "2 clusters"),
        ("http://127.0.0.1:8265", [MINE], "RAY_API_SERVER_ADDRESS"),
        ("ray://127.0.0.1:10001", [MINE], "HOST:PORT of a cluster's head"),
        ("127.0.0.1", [MINE], "HOST:PORT of a cluster's head"),
        ("127.0.0.1:head", [MINE], "HOST:PORT of a cluster's head"),
    ],
)
def test_nothing_is_guessed(named: str | None, local: list[LocalNode], reported: str) -> None:
    with pytest.raises(ResourceError, match=reported):
        choose(named, local)


@pytest.mark.parametrize(
    ("answer", "mode", "reported"),
    [
        ("nothing", "token", "nothing that answers there"),
        ("no token", "token", r"no token in /nowhere/token.*source \.sentdist/env"),
        ("refused", "token", "a token that it refuses.*somebody else's"),
        ("refused", "disabled", "RAY_AUTH_MODE=disabled, and it wants a token"),
        ("foreign", "token", "does not answer as a Ray head"),
        ("no node here", "token", "ray job submit"),
    ],
)
def test_each_trouble_has_a_sentence_of_its_own(answer: HeadAnswer, mode: str, reported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    trouble = refusal(CHOSEN, answer)
    assert trouble is not None
    assert re.search(reported, str(trouble))
    assert CHOSEN.address in str(trouble)


def test_a_good_answer_is_no_trouble() -> None:
    assert refusal(CHOSEN, "good") is None


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


@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "right"}, "no node here"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "right\n"}, "no node here"),  # with the line's end of a file
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "wrong"}, "refused"),
        ({"RAY_AUTH_MODE": "disabled"}, "refused"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/nowhere/token"}, "no token"),
    ],
)
def test_the_token_is_tried_before_ray_is(
    environment: dict[str, str], answer: HeadAnswer, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ask(head) == answer


def test_the_token_file_is_read(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("right\n")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert ask(head) == "no node here"


def test_a_head_is_found_behind_an_address_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    if not _has_ipv6():
        pytest.skip("no IPv6 on this machine")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "right")
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[_Gate("right")])
    port = server.add_insecure_port("[::1]:0")
    server.start()
    assert ask(f"[::1]:{port}") == "no node here"
    server.stop(None).wait()


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("said", "reported"), [("wrong", "RAY_AUTH_TOKEN"), ("", "/its/token")])
def test_of_a_token_that_is_refused_its_place_is_reported(said: str, reported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": said, "RAY_AUTH_TOKEN_PATH": "/its/token"}.items():
        monkeypatch.setenv(name, value)
    assert f"a token that it refuses (that of {reported})" in str(refusal(CHOSEN, "refused"))


@pytest.fixture(params=["closed", "deaf", "another program"])
def wrong(request: pytest.FixtureRequest) -> Iterator[str]:
    """Addresses of what is no Ray head: nobody, one that never answers, one that answers something else."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        if request.param == "closed":
            listening.close()
        if request.param == "another program":
            threading.Thread(target=_say_hello, args=(listening,), daemon=True).start()
        yield address


def _say_hello(listening: socket.socket) -> None:
    while True:
        try:
            with listening.accept()[0] as one:
                one.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")
        except OSError:  # the test is over
            return


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """How long each question to a head may wait, in seconds; None: forever."""
    from ray.core.generated import gcs_service_pb2_grpc

    bounds: list[float | None] = []
    opened, real = socket.create_connection, gcs_service_pb2_grpc.NodeInfoGcsServiceStub

    def open_connection(address: tuple[str, int], timeout: float | None = None) -> socket.socket:
        bounds.append(timeout)
        return opened(address, timeout)

    def stub(channel: object) -> SimpleNamespace:
        def question(request: object, timeout: float | None = None, **more: Any) -> object:
            bounds.append(timeout)
            return real(channel).GetAllNodeInfo(request, timeout=timeout, **more)

        return SimpleNamespace(GetAllNodeInfo=question)

    monkeypatch.setattr(cluster_address.socket, "create_connection", open_connection)
    monkeypatch.setattr(gcs_service_pb2_grpc, "NodeInfoGcsServiceStub", stub)
    return bounds


def test_a_wrong_address_ends_within_seconds(
    wrong: str, waits: list[float | None], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is asked once a layer, each time for a bounded while, and Ray, which tries for minutes, is not asked to join."""
    joined: list[str] = []
    monkeypatch.setattr(connection.ray, "init", lambda address, **options: joined.append(address))
    monkeypatch.setenv("RAY_ADDRESS", wrong)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(cluster_address, "ANSWER_S", 1.0)
    with pytest.raises(ResourceError, match=f"Ray cluster at {wrong} .named by RAY_ADDRESS.: found (nothing that answers|something that)"):
        connect()
    assert not joined and waits in ([cluster_address.TCP_S], [cluster_address.TCP_S, 1.0])
    assert capfd.readouterr().err == ""  # no lines of Ray's C++ parts


def test_connecting_wants_the_auth_mode_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(RecipeError, match="RAY_AUTH_MODE"):
        connect()


def test_who_has_joined_already_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    monkeypatch.setattr(connection.ray, "is_initialized", lambda: True)
    connect()


def test_a_mode_that_ray_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "Token")
    with pytest.raises(RecipeError, match="found Token; expected token or disabled"):
        connect()


@pytest.mark.parametrize("in_a_job", [True, False])
def test_which_cluster_it_is_is_said_where_a_person_reads_it(
    in_a_job: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    monkeypatch.delenv(connection.IN_A_JOB, raising=False)
    if in_a_job:
        monkeypatch.setenv(connection.IN_A_JOB, "{}")
    monkeypatch.setattr(connection, "ask", lambda address: "good")
    for name in ("init", "shutdown"):
        monkeypatch.setattr(connection.ray, name, lambda **_: None)
    monkeypatch.setattr(connection.atexit, "register", lambda _: None)
    signals: list[str] = []
    monkeypatch.setattr(connection, "end_on_sigterm", lambda: signals.append("in order"))
    connection.connect_to_drive()
    assert signals == ["in order"]
    said = "" if in_a_job else "Ray cluster: 127.0.0.1:6379, named by RAY_ADDRESS.\n"
    assert capsys.readouterr().err == said


def test_a_driver_disconnects_before_ray_waits_for_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(connection, "refusal", lambda chosen, answer: None)
    monkeypatch.setattr(connection, "ask", lambda address: None)
    monkeypatch.setattr(connection.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(connection.ray, "init", lambda **_: done.append("joined"))
    monkeypatch.setattr(connection.atexit, "register", done.append)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    connect()
    assert done == ["joined", connection.ray.shutdown]


def test_versions_that_differ_are_reported_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray says it in lines, of which the first ends at "was started with:"."""
    from ray._private.utils import check_version_info

    def init(**_: object) -> None:
        check_version_info({"ray_version": "2.58.0", "python_version": "3.11.9"}, "10.0.0.6")

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(connection, "refusal", lambda chosen, answer: None)
    monkeypatch.setattr(connection, "ask", lambda address: None)
    monkeypatch.setattr(connection.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(connection.ray, "init", init)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    with pytest.raises(ResourceError, match=rf"started with: Ray: 2\.58\.0 Python: 3\.11\.9 .* Ray: {re.escape(ray.__version__)} "):
        connect()


def test_the_doctor_looks_at_the_cluster_that_commands_use(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", head)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
    found = next(finding for finding in examine(str(tmp_path), None) if finding.subject == "Ray")
    assert found.state == "bad"
    assert head in found.text
    assert "refuses" in found.text


@pytest.mark.parametrize("lacks", ["RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"])
@pytest.mark.parametrize("is_named", [False, True])
def test_a_certificate_that_is_not_there_is_reported(lacks: str, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell in which RAY_USE_TLS alone was set, or a host that has no copy yet, got a KeyError."""
    (tmp_path / "file").touch()
    for name in ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    if is_named:
        monkeypatch.setenv(lacks, str(tmp_path / "not there"))
    else:
        monkeypatch.delenv(lacks)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with socket.create_server(("127.0.0.1", 0)) as head, pytest.raises(ResourceError, match=f"{lacks}.*since RAY_USE_TLS is set"):
        ask(f"127.0.0.1:{head.getsockname()[1]}")


@pytest.mark.parametrize(
    ("words", "uid", "network", "is_mine"),
    [
        (["/opt/ray/raylet", "--gcs-address=10.0.0.1:6379", "--node_id=aa"], 0, "ours", True),
        (["/opt/ray/raylet", "--gcs-address=10.0.0.1:6379", "--node_id=aa"], 1, "ours", False),
        (["/opt/ray/raylet", "--gcs-address=10.0.0.1:6379", "--node_id=aa"], 0, "a container's", False),
        (["/opt/ray/raylet", "--node_id=aa"], 0, "ours", False),
        (["vi", "/opt/ray/raylet", "--gcs-address=10.0.0.1:6379", "--node_id=aa"], 0, "ours", False),
        ([], 0, "ours", False),
    ],
)
def test_only_ray_nodes_of_the_user_in_this_network_are_theirs(
    words: list[str], uid: int, network: str, is_mine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = SimpleNamespace(pid=7, info={"cmdline": words, "uids": SimpleNamespace(real=os.getuid() + uid)})
    monkeypatch.setattr("psutil.process_iter", lambda fields: [process])
    monkeypatch.setattr(cluster_address, "_shares_our_network", lambda pid: network == "ours")
    assert cluster_address.local_nodes() == [LocalNode(address="10.0.0.1:6379", node_id="aa")] * is_mine


def test_the_cluster_of_one_command_is_no_other_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside `sentdist encode` on all GPUs of a machine, `sentdist run` was refused over a token instead of learning that it has none."""
    socket_of = "--raylet_socket_name=/tmp/sd-own-ab12/session_1/sockets/raylet"
    words = ["/opt/ray/raylet", socket_of, "--gcs-address=10.0.0.1:6379", "--node_id=aa"]
    monkeypatch.setattr("psutil.process_iter", lambda fields: [SimpleNamespace(pid=7, info={"cmdline": words, "uids": None})])
    monkeypatch.setattr(cluster_address, "_shares_our_network", lambda pid: True)
    (node,) = cluster_address.local_nodes()
    assert node.is_private
    with pytest.raises(ResourceError, match="no cluster of yours"):
        choose(None, [node])
    mine = LocalNode(address="10.0.0.2:6379", node_id="bb")
    assert choose(None, [node, mine]).address == mine.address


def test_each_certificate_is_shown_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setenv("RAY_USE_TLS", "1")
    for name in ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"):
        (tmp_path / name).write_text(name)
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(grpc, "ssl_channel_credentials", lambda authority, key, chain: shown.append((authority, key, chain)))
    monkeypatch.setattr(grpc, "secure_channel", lambda address, credentials, options: shown.append(dict(options)))
    cluster_address._channel("10.0.0.1:6379")
    assert shown[0] == (b"RAY_TLS_CA_CERT", b"RAY_TLS_SERVER_KEY", b"RAY_TLS_SERVER_CERT")
    assert shown[1]["grpc.enable_http_proxy"] == 0, "a proxy would see the token"
