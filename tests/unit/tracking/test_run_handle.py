"""What a training's handle sends of curves and machine, and when. The server is stood in for."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow.system_metrics.metrics import gpu_monitor

from sentdist.tracking import mlflow_tracker as run_handle
from sentdist.tracking.mlflow_tracker import MlflowRun, SystemSampler


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


class Monitor:
    """Gives one number more each time that it is asked, and averages those since it was cleared."""

    def __init__(self) -> None:
        self.asked, self.kept = 0, list[float]()

    def collect_metrics(self) -> None:
        self.asked += 1
        self.kept.append(float(self.asked))

    def aggregate_metrics(self) -> dict[str, float]:
        return {"cpu": sum(self.kept) / len(self.kept)}

    def clear_metrics(self) -> None:
        self.kept.clear()


class Nvml(SimpleNamespace):
    """nvidia-ml-py on a machine with two GPUs."""

    NVMLError = RuntimeError

    def __init__(self) -> None:
        super().__init__(
            nvmlInit=lambda: None,
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetMemoryInfo=lambda index: SimpleNamespace(used=2e9, total=8e9),
            nvmlDeviceGetUtilizationRates=lambda index: SimpleNamespace(gpu=40 + index),
            nvmlDeviceGetPowerUsage=lambda index: 350_000,
            nvmlDeviceGetEnforcedPowerLimit=lambda index: 700_000,
        )


def test_the_load_of_every_gpu_reaches_mlflow(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setattr(gpu_monitor, "pynvml", sys.modules["pynvml"], raising=False)
    client = Client()
    run = handle(client)
    run.watch_system()
    run._is_closing = True
    run._serve()
    found = {name: value for name, value, _ in _sent(client) if "/gpu_" in name}
    for index, load in enumerate((40.0, 41.0)):
        assert found[f"system/gpu_{index}_utilization_percentage"] == load
        assert found[f"system/gpu_{index}_memory_usage_percentage"] == 25.0
        assert found[f"system/gpu_{index}_power_usage_percentage"] == 50.0


def test_each_sample_of_the_machine_is_of_its_own_moment_and_has_its_own_step(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, kind in (("cpu", "CPU"), ("disk", "Disk"), ("network", "Network"), ("gpu", "GPU")):
        monkeypatch.setattr(f"mlflow.system_metrics.metrics.{module}_monitor.{kind}Monitor", Monitor)
    sampler = SystemSampler()
    sampler._monitors = sampler._monitors[:1]
    assert [sampler.sample() for _ in range(2)] == [{"system/cpu": 2.0}, {"system/cpu": 3.0}]
    client = Client()
    run = handle(client)
    run.watch_system()
    for _ in range(2):
        monkeypatch.setattr(run_handle, "SystemSampler", lambda: sampler)
        run._is_closing = True
        run._serve()
    assert _sent(client) == [("system/cpu", 4.0, 3), ("system/cpu", 5.0, 4)]
