"""What a training's handle sends of curves and machine, and when. The server is stood in for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.tracking import run_handle
from sentdist.tracking.run_handle import MlflowRun


class Client:
    """Keeps the points of each request; `away`: requests that it does not take."""

    def __init__(self, *, away: int = 0, known: dict[str, list[int]] | None = None) -> None:
        self.away, self.known = away, known or {}
        self.requests: list[list[tuple[str, float, int]]] = []

    def get_metric_history(self, run_id: str, name: str) -> list[Any]:
        return [SimpleNamespace(step=step) for step in self.known.get(name, [])]

    def log_batch(self, run_id: str, metrics: Any, params: Any, tags: Any) -> None:
        self.requests.append([(metric.key, metric.value, metric.step) for metric in metrics])


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(client: Client) -> MlflowRun:
        run = MlflowRun(uri="http://127.0.0.1:9", experiment_id="1", run_id="2")

        def attempt(what: str, action: Any, **_: Any) -> Any:
            client.away -= 1
            return action(client) if client.away < 0 else None

        monkeypatch.setattr(run, "_server", SimpleNamespace(attempt=attempt, look_again=lambda: None, warnings=[]))
        monkeypatch.setattr(run, "_start", lambda: None)
        return run

    return made


def _sent(client: Client) -> list[tuple[str, float, int]]:
    return [point for request in client.requests for point in request]


def test_a_step_that_the_run_has_is_not_sent_again_whoever_sent_it(handle: Any) -> None:
    client = Client(known={"loss": [1, 2]})
    run = handle(client)
    for step in (2, 3):
        run.metrics({"loss": float(step)}, step=step)
    assert run._send()
    run.metrics({"loss": 3.0}, step=3)  # a training that went back to its checkpoint
    run.metrics({"loss": 4.0}, step=4)
    assert run._send()
    assert _sent(client) == [("loss", 3.0, 3), ("loss", 4.0, 4)]


def test_points_that_a_server_did_not_take_are_sent_later_in_their_order(handle: Any) -> None:
    client = Client(away=1)
    run = handle(client)
    for step in (1, 2, 3):
        run.metrics({"loss": float(step)}, step=step)
    assert not run._send() and run._not_before > run_handle.time.monotonic()
    run.metrics({"loss": 4.0}, step=4)
    assert run._send()
    assert _sent(client) == [("loss", float(step), step) for step in (1, 2, 3, 4)]
