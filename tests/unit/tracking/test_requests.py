"""How tracking asks a server: which addresses it takes, how large requests are, what it does about answers that collide."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.errors import RecipeError, ResourceError
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking.mlflow_tracker import make_tracker
from sentdist.tracking.run_update import RunUpdate, batches
from sentdist.tracking.run_values import Point
from sentdist.tracking.search_runs import rebuild
from sentdist.tracking.server import Server, despite_collisions
from sentdist.tracking.tracker import NullRun, NullTracker
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


@pytest.mark.parametrize("uri", ["sqlite:///mlflow.db", "./mlruns", "http://", "databricks"])
def test_an_address_that_is_no_server_is_refused_before_anything_starts(uri: str) -> None:
    with pytest.raises(RecipeError, match="MLFLOW_TRACKING_URI"):
        Server(uri)


def test_a_password_in_the_address_is_not_shown() -> None:
    assert Server("https://me:secret@host:5000/prefix/").page == "https://host:5000/prefix"


def test_a_server_that_never_answers_is_asked_once_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # the kernel accepts, nobody reads
        server = Server(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        started = time.monotonic()
        assert server.attempt("open the sweep", lambda client: client.get_experiment("1")) is None
        asked_s, started = time.monotonic() - started, time.monotonic()
        assert server.attempt("open a run", lambda client: client.get_experiment("1")) is None
        assert time.monotonic() - started < asked_s / 3  # not asked: one question takes the whole three seconds
    (warning,) = server.warnings
    assert "is away (could not open the sweep" in warning


def test_bringing_a_store_to_a_server_that_is_away_is_reported_in_a_sentence(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    save_sweep(context.store, sweep_record(plan))
    with pytest.raises(
        ResourceError, match=r"could not rebuild the sweep .*: nothing answers there\)\. See that the server runs"
    ) as caught:
        rebuild(context.store, "http://127.0.0.1:9")
    assert "expected" not in str(caught.value) and "training goes on" not in str(caught.value)


def test_without_an_address_only_the_store_keeps_track(tmp_path: object) -> None:
    tracker = make_tracker(None, ArtifactStore(str(tmp_path)))
    assert isinstance(tracker, NullTracker)
    run = tracker.begin("0" * 16)
    assert isinstance(run, NullRun)
    assert run.close() == []


@pytest.mark.parametrize(
    ("num_parameters", "num_metrics", "num_tags", "sizes"),
    [
        (0, 0, 0, []),
        (0, 0, 2, [(0, 0, 2)]),
        (30, 50, 2, [(30, 50, 2)]),
        (100, 800, 0, [(100, 800, 0)]),
        (101, 0, 1, [(100, 0, 0), (1, 0, 1)]),
        (1, 1700, 3, [(1, 800, 0), (0, 800, 0), (0, 100, 3)]),
    ],
)
def test_requests_have_a_size_that_a_server_takes(
    num_parameters: int, num_metrics: int, num_tags: int, sizes: list[tuple[int, int, int]]
) -> None:
    parameters = {f"p{number}": "1" for number in range(num_parameters)}
    metrics = [Point("loss", 1.0, 0, step) for step in range(num_metrics)]
    tags = {f"t{number}": "1" for number in range(num_tags)}
    found = batches(parameters, metrics, tags)
    assert [(len(batch.parameters), len(batch.metrics), len(batch.tags)) for batch in found] == sizes
    assert [point for batch in found for point in batch.metrics] == metrics
    assert dict(pair for batch in found for pair in batch.parameters) == parameters


def test_what_stands_on_a_run_is_not_sent_again() -> None:
    """A parameter cannot be changed: MLflow refuses the whole request."""
    there = SimpleNamespace(params={"seed": "0"}, tags={"kept": "1", "new": "1"}, metrics={"loss": 1.0, "score": 1.0})
    run: Any = SimpleNamespace(data=there, info=SimpleNamespace(run_id="r", status="FINISHED"), inputs=None)
    sent: list[str] = []

    class Client:
        def log_batch(self, run_id: str, metrics: list[Any], params: list[Any], tags: list[Any]) -> None:
            sent.extend(f"{one.key}={one.value}" for one in (*params, *metrics, *tags))

        def set_terminated(self, run_id: str, status: str, ended_ms: int | None) -> None:
            sent.append(status)

    for status in ("FINISHED", "FAILED"):
        update = RunUpdate(run)
        update.parameters({"seed": "1", "phi": "2"})
        update.tags({"kept": "1", "new": "2"})
        update.figures({"loss": 1.0, "score": 2.0}, 0)
        update.end(status, 1)
        update.send(Client())  # type: ignore[arg-type]
    assert sent == ["phi=2", "score=2.0", "new=2", "FAILED", "phi=2", "score=2.0", "new=2"]


def test_what_another_request_made_meanwhile_is_tried_again_and_nothing_else() -> None:
    from mlflow.exceptions import MlflowException

    def failing(*messages: str) -> list[str]:
        left = list(messages)

        def act() -> str:
            if left:
                raise MlflowException(left.pop(0))
            return "done"

        return [despite_collisions(act, table="registered_model_aliases"), *left]

    collision = "(sqlite3.IntegrityError) UNIQUE constraint failed: registered_model_aliases.name"
    assert failing(collision, collision) == ["done"]
    with pytest.raises(MlflowException, match="no such model"):
        failing("no such model")
    with pytest.raises(MlflowException, match="datasets"):
        failing("UNIQUE constraint failed: datasets.name")
    with pytest.raises(MlflowException, match="UNIQUE"):
        failing(*[collision] * 20)
