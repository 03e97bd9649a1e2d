"""Choose the Ray cluster of a command, check that it answers (within seconds; Ray would try for minutes), or start a private one."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from sentdist.errors import ResourceError
from sentdist.machine import environment_with
from sentdist.store.local_storage import maker_of, scratch_name

TCP_S = 2.0  # for the connection; a host on the other side of the world takes 0.3 s
ANSWER_S = 10.0  # for the answer of a busy head
PRIVATE = "sd-own-"  # prefix of the folders of private clusters, each used by one command only
START_ONE = "Start one (`sentdist up`, or see cluster/README.md), or use `sentdist sweep RECIPE --local`."

TAKE_TOKEN = "Run `source .sentdist/env` in the folder that started it, or set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH."

HeadAnswer = Literal["good", "nothing", "no token", "refused", "foreign", "no node here"]


class LocalNode(NamedTuple):
    """A Ray node that runs on this machine."""

    address: str  # host:port of its cluster's head
    is_private: bool = False  # True for a cluster that one command started for itself


class ChosenHead(NamedTuple):
    """The head that a command uses, host:port, and the reason for the choice, as a phrase."""

    address: str
    because: str


def choose(named: str | None, local: Iterable[LocalNode]) -> ChosenHead:
    """Choose the cluster that RAY_ADDRESS names, or else the only one that the user runs on this machine.

    Args:
        named: value of RAY_ADDRESS.
        local: the user's nodes on this machine.

    Raises:
        ResourceError: the value is not the address of a head, or there is no cluster, or there are several.
    """
    if named and named != "auto":
        return ChosenHead(address=_head(named), because="named by RAY_ADDRESS")
    addresses = sorted({node.address for node in local if not node.is_private})
    if not addresses:
        found = "no cluster of yours on this machine, and RAY_ADDRESS is not set"
        raise ResourceError(where="Ray", found=found, expected="a running cluster", remedy=START_ONE)
    if len(addresses) > 1:
        found = f"{len(addresses)} clusters on this machine ({', '.join(addresses)})"
        remedy = "Run `source .sentdist/env` in the folder that started yours."
        raise ResourceError(where="Ray", found=found, expected="RAY_ADDRESS to name one of them", remedy=remedy)
    return ChosenHead(address=addresses[0], because="the only one of yours on this machine")


def _head(named: str) -> str:
    host, _, port = named.rpartition(":")
    if "/" in named or not host or not port.isdigit():
        expected, remedy = "HOST:PORT of a cluster's head, such as 127.0.0.1:6379", "A dashboard's address is RAY_API_SERVER_ADDRESS."
        raise ResourceError(where="RAY_ADDRESS", found=named, expected=expected, remedy=remedy)
    return named


def local_nodes() -> list[LocalNode]:
    """Return the user's Ray nodes on this machine."""
    import psutil

    found = []
    for process in psutil.process_iter(["cmdline", "uids"]):
        words, uids = process.info["cmdline"] or [], process.info["uids"]
        address = re.search(r"--gcs-address=(\S+)", " ".join(words))
        if address is not None and Path(words[0]).name == "raylet" and (uids is None or uids.real == os.getuid()):
            found.append(LocalNode(address[1], any(f"/{PRIVATE}" in word for word in words)))
    return found


def token() -> str | None:
    """Return the token that Ray sends: RAY_AUTH_TOKEN, else the file RAY_AUTH_TOKEN_PATH, else ~/.ray/auth_token; None if there is none."""
    if value := os.environ.get("RAY_AUTH_TOKEN"):
        return value.strip()
    try:
        return _token_file().read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _token_file() -> Path:
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token").expanduser()


def takes_connections(address: str) -> bool:
    """Return True if a server listens at host:port; takes at most `TCP_S`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=TCP_S):
            return True
    except OSError:
        return False


def ask(address: str) -> HeadAnswer:
    """Check that a head answers, takes our token and has a node on this machine, as a driver needs; takes at most `TCP_S` + `ANSWER_S`.

    Raises:
        ResourceError: RAY_USE_TLS is set, and a certificate cannot be read.
    """
    if not takes_connections(address):
        return "nothing"
    secret = token() if os.environ.get("RAY_AUTH_MODE") == "token" else None
    if secret is None and os.environ.get("RAY_AUTH_MODE") == "token":
        return "no token"
    return _ask_head(address, secret)


def _ask_head(address: str, secret: str | None) -> HeadAnswer:
    import grpc
    from ray.core.generated import gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc

    with _channel(address) as channel:
        stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        alive = gcs_service_pb2.GetAllNodeInfoRequest(state_filter=gcs_pb2.GcsNodeInfo.ALIVE)  # type: ignore[attr-defined]
        try:
            reply = stub.GetAllNodeInfo(alive, timeout=ANSWER_S, metadata=(("authorization", f"Bearer {secret}"),) if secret else ())
        except grpc.RpcError as error:
            return "refused" if error.code() is grpc.StatusCode.UNAUTHENTICATED else "foreign"
    from ray._private.services import find_node_ids

    here = find_node_ids()  # of every user: a driver with the token may use a node that another user started
    return "good" if any(node.node_id.hex() in here for node in reply.node_info_list) else "no node here"


def _channel(address: str):  # type: ignore[no-untyped-def]
    """Connect as Ray's clients do, without a proxy; grpc has no types."""
    import grpc

    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 512 * 2**20)]
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return grpc.insecure_channel(address, options=options)
    names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
    try:
        chain, key, authority = (Path(os.environ.get(name, "")).read_bytes() for name in names)
    except OSError as error:
        raise ResourceError(
            where="RAY_USE_TLS", found=str(error), expected=", ".join(names), remedy="See infra/docs/security.md."
        ) from None
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, chain), options=options)


def check(chosen: ChosenHead) -> None:
    """Raise ResourceError if a head does not answer as `ask` wants; Ray itself would try for minutes."""
    answer = ask(chosen.address)
    if answer == "good":
        return
    secret = "RAY_AUTH_TOKEN" if os.environ.get("RAY_AUTH_TOKEN") else str(_token_file())
    found, remedy = {
        "nothing": (f"nothing that answers there within {TCP_S:.0f} s", f"{START_ONE} Or correct RAY_ADDRESS."),
        "no token": (f"no token in {secret}", TAKE_TOKEN),
        "refused": (f"that it refuses the token of {secret}", TAKE_TOKEN),
        "foreign": ("a server that does not answer as a Ray head", "Correct RAY_ADDRESS (the head's port) and RAY_USE_TLS."),
        "no node here": ("none of its nodes on this machine", "Submit a job instead: ray job submit -- python -m rayjobs.sweep RECIPE."),
    }[answer]
    where = f"Ray cluster at {chosen.address} ({chosen.because})"
    raise ResourceError(where=where, found=found, expected="a head with a node on this machine", remedy=remedy)


PLACE = "/tmp"  # short: paths of sockets may have 107 characters
_token: dict[str, str] = {}


@contextmanager
def own_cluster(*, cpus: int, gpus: int = 0) -> Iterator[None]:
    """Start a private Ray cluster without a dashboard, connect to it, and end it with the context; first remove folders of killed ones.

    Its token is known only to this process and its children. If Ray is already imported, the token mode that it read from the
    environment stays in force.
    """
    if "ray" not in sys.modules:
        _token.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    _remove_left(Path(PLACE))
    with (
        # Workers outlive Ray by a moment, and may write there while it is removed.
        tempfile.TemporaryDirectory(prefix=PRIVATE, dir=PLACE, ignore_cleanup_errors=True) as folder,
        environment_with(_token),
    ):
        (Path(folder) / scratch_name("cluster")).touch()
        import ray

        ray.init(
            address="local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, _temp_dir=folder, logging_level=logging.ERROR,
            log_to_driver=False,
        )  # fmt: skip
        try:
            yield
        finally:
            ray.shutdown()


def _remove_left(parent: Path) -> None:
    """Remove the user's folders whose process is dead, by the name of a file in them (the folder's name must be short)."""
    for folder in parent.glob(f"{PRIVATE}*"):
        with suppress(OSError):
            is_own = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
            if is_own and any(maker_of(path.name) == "dead" for path in folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)


NAMESPACE = "sentdist"
HEAD_RESOURCE = "node:__internal_head__"  # which Ray gives the head only
HEAD = {HEAD_RESOURCE: 0.001}  # reserved by an actor that must live as long as the cluster
