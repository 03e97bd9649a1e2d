"""Whether an MLflow server is there is asked of what its client connects to: the server, or the proxy on the way to it."""

from __future__ import annotations

import pytest

from sentdist.errors import RecipeError
from sentdist.services.processes import free_port
from sentdist.tracking.server import Server
from tests.support.listening import listening


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "SENTDIST_MLFLOW_PASSWORD_FILE"):
        monkeypatch.setenv(name, "")


def _experiment(uri: str) -> tuple[str | None, list[str]]:
    server = Server(uri)
    return server.attempt("find it", lambda client: str(client.get_experiment("7").name)), server.warnings


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_server_that_only_a_proxy_reaches_is_there(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(text='{"experiment": {"name": "found"}}') as proxy:
        monkeypatch.setenv("http_proxy", f"{scheme}127.0.0.1:{proxy.port}")
        assert _experiment("http://mlflow.invalid:5000") == ("found", [])
        assert {path.partition("?")[0] for path, _ in proxy.shown} == {"http://mlflow.invalid:5000/api/2.0/mlflow/experiments/get"}


def test_a_proxy_that_is_away_is_reported_as_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:port"):
        monkeypatch.setenv("http_proxy", address)
        found, (line,) = _experiment("http://mlflow.invalid:5000")
        assert found is None and "is away" in line


def test_a_server_that_needs_no_proxy_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with listening(text='{"experiment": {"name": "found"}}') as server:
        assert _experiment(server.url) == ("found", [])


@pytest.mark.parametrize("uri", ["http://mlflow:99999", "http://mlflow:tcp", "http://[::1", "mlflow:5000"])
def test_an_address_that_is_none_is_refused_in_a_sentence(uri: str) -> None:
    with pytest.raises(RecipeError, match=r"MLFLOW_TRACKING_URI.*the http\(s\) address of an MLflow server"):
        Server(uri)
