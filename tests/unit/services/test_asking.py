"""Asking servers over HTTP: what comes back, and who is shown a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.services.processes import free_port, get
from tests.support.listening import listening


def test_a_reply_has_status_and_text() -> None:
    with listening(text="3.17.2") as server:
        reply = get(f"{server.url}/version", authorization="Bearer x", timeout_s=5)
        assert reply is not None and (reply.status, reply.text) == (200, "3.17.2")
        assert server.shown == [("/version", "Bearer x")]
    with listening(status=403, text="no") as server:
        reply = get(f"{server.url}/", timeout_s=5)
        assert reply is not None and reply.status == 403
        assert server.shown == [("/", None)]


def test_nobody_is_none(tmp_path: Path) -> None:
    assert get(f"http://127.0.0.1:{free_port()}", timeout_s=5) is None
    assert get(f"file://{tmp_path}", timeout_s=5) is None
    assert get("http://[", timeout_s=5) is None


def test_a_secret_follows_a_server_to_itself_and_to_nobody_else() -> None:
    with listening(text="theirs") as other, listening(to=f"{other.url}/there") as server:
        reply = get(server.url, authorization="Bearer x", timeout_s=5)
        assert reply is not None and reply.text == "theirs"
        assert other.shown == [("/there", None)]
    with listening(to="/?again") as server:
        assert get(server.url, authorization="Bearer x", timeout_s=5) is not None  # it gives up at the tenth time
        assert len(server.shown) > 1 and {shown for _, shown in server.shown} == {"Bearer x"}


def test_no_proxy_is_asked_about_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with listening(text="ours") as server, listening(text="the proxy's") as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        reply = get(server.url, timeout_s=5)
        assert reply is not None and reply.text == "ours" and proxy.shown == []
