"""Track sweeps in MLflow; every request is guarded, so that no server can stop or slow a training."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sentdist.plan.stage import Stage
from sentdist.store.record import Record
from sentdist.store.searches import SearchRecord
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord
from sentdist.tracking.registry import register_best_encoder
from sentdist.tracking.run_update import RunLayout, add_metrics
from sentdist.tracking.run_values import Point, curve_metrics
from sentdist.tracking.search_runs import SearchRuns
from sentdist.tracking.server import Server, patience
from sentdist.tracking.sweep_runs import SweepRuns
from sentdist.tracking.tracker import NullRun, NullTracker, RunHandle, RunOutcome, Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient


class SystemSampler:
    """Samples CPU, memory, disk, network and, if nvidia-ml-py is installed, GPUs with MLflow's monitors.

    Its `SystemMetricsMonitor` is not used: it requests the run before every sample and ends for good when one request fails.
    """

    def __init__(self) -> None:
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

        self.count = 0
        self._monitors = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
        with contextlib.suppress(ImportError, RuntimeError):  # no GPU, or no library for it: the page shows the rest
            self._monitors.append(GPUMonitor())
        self._monitors[0].collect_metrics()  # the load of the CPU is measured since the last call
        self._monitors[0].clear_metrics()

    def sample(self) -> dict[str, float]:
        """Return metrics by name, `system/…`."""
        found: dict[str, float] = {}
        for monitor in self._monitors:
            monitor.collect_metrics()
            found |= {f"system/{name}": float(value) for name, value in monitor.aggregate_metrics().items()}
            monitor.clear_metrics()
        self.count += 1
        return found


SEND_EVERY_S = 1.0
SAMPLE_EVERY_S = 10.0
MAX_WAITING = 100_000  # points kept while the server is away; the history in the store has them all


class MlflowRun:
    """A run handle for one process, pickled as address and run id; its thread starts with the first message.

    Points that the run has already are not sent again: a training that resumes from a checkpoint repeats steps.
    """

    def __init__(self, *, uri: str, experiment_id: str, run_id: str) -> None:
        self.experiment_id = experiment_id
        self.run_id = run_id
        self._server = Server(uri)
        self._queue: deque[tuple[dict[str, float], int, int]] = deque(maxlen=MAX_WAITING)  # values of a step, time in ms, step
        self._waiting: deque[Point] = deque(maxlen=MAX_WAITING)  # used only by the thread
        self._known: dict[str, set[int]] = {}
        self._wake = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._watches_system = False
        self._failures = 0
        self._not_before = 0.0

    def __reduce__(self) -> tuple[object, ...]:
        return _opened, (self._server.uri, self.experiment_id, self.run_id)

    @property
    def url(self) -> str | None:
        return self._server.run_page(self.experiment_id, self.run_id)

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Queue the values of one step, see `RunHandle.metrics`; the thread sends them."""
        self._queue.append((dict(values), int(time.time() * 1000), step))
        self._start()

    def watch_system(self) -> None:
        """Sample this machine every 10 s until `close`."""
        self._watches_system = True
        self._start()

    def close(self, *, timeout_s: float = 5.0) -> list[str]:
        """Send what is left within `timeout_s`; `finish` or `rebuild` sends the rest from the history."""
        if self._thread is not None:
            self._is_closing = True
            self._wake.set()
            self._thread.join(timeout_s)
            self._thread = None
        return list(self._server.warnings)

    def _start(self) -> None:
        if self._thread is None:
            self._is_closing = False
            self._wake.clear()
            self._thread = threading.Thread(target=self._serve, name="sentdist-mlflow", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        sampler = SystemSampler() if self._watches_system else None
        next_sample = time.monotonic() + 1.0  # soon, so that a short training has one
        while True:
            is_last = self._is_closing
            if sampler is None and self._watches_system:
                sampler = SystemSampler()
            if sampler is not None and (is_last or time.monotonic() >= next_sample):
                next_sample = time.monotonic() + SAMPLE_EVERY_S
                at_ms = int(time.time() * 1000)
                self._waiting.extend(Point(name, value, at_ms, step=sampler.count) for name, value in sampler.sample().items())
            if is_last:
                self._server.look_again()
                while (self._queue or self._waiting) and self._send():
                    pass
                return
            if time.monotonic() >= self._not_before:
                self._send()
            self._wake.wait(SEND_EVERY_S)

    def _send(self) -> bool:
        while self._queue:
            values, at_ms, step = self._queue.popleft()
            self._waiting.extend(Point(name, value, at_ms, step) for name, value in curve_metrics(values).items())
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), 1000))]
        if not batch or self._server.attempt("send metrics", lambda client: self._send_new(client, batch)):
            self._failures = 0
            return True
        self._waiting.extendleft(reversed(batch))
        self._failures += 1
        self._not_before = time.monotonic() + min(60.0, 2.0**self._failures)
        return False

    def _send_new(self, client: MlflowClient, batch: Sequence[Point]) -> bool:
        for name in {point.name for point in batch} - set(self._known):
            is_curve = not name.startswith("system/")
            self._known[name] = {metric.step for metric in client.get_metric_history(self.run_id, name)} if is_curve else set()
        new = [point for point in batch if point.step not in self._known[point.name] or point.name.startswith("system/")]
        add_metrics(client, self.run_id, new)
        for point in new:
            self._known[point.name].add(point.step)
        return True


def _opened(uri: str, experiment_id: str, run_id: str) -> MlflowRun:
    return MlflowRun(uri=uri, experiment_id=experiment_id, run_id=run_id)


Answer = TypeVar("Answer")

WAIT_S = 8.0  # for a message that a training waits for, a dozen small requests; the end of the sweep sends the rest


class MlflowTracker:
    """See `Tracker`. Runs are found by their tags, so a restart, another process or a rebuild continues them.

    Raises:
        RecipeError: `uri` is not the address of a server.
    """

    def __init__(self, uri: str, store: ArtifactStore) -> None:
        self._server = Server(uri)
        self._store = store
        self._runs: SweepRuns | None = None

    @property
    def warnings(self) -> Sequence[str]:
        return tuple(self._server.warnings)

    @property
    def url(self) -> str | None:
        """Page of the sweep's run."""
        runs = self._runs
        return None if runs is None or runs.parent is None else self._server.run_page(runs.experiment, runs.parent)

    @property
    def trials_page(self) -> str | None:
        runs = self._runs
        return None if runs is None or not runs.experiment else f"{self._server.page}/{runs.trials_page}"

    def begin_sweep(self, sweep: SweepRecord, stages: Mapping[str, Stage]) -> None:
        self._runs = self._made(RunLayout(sweep=sweep, stages=dict(stages)))
        self._attempt("open the sweep", lambda client, runs: runs.open(client, is_running=True), wait_s=WAIT_S)

    def begin(self, key: str) -> RunHandle:
        run_id = self._attempt("open a run", lambda client, runs: runs.begin(client, key), wait_s=WAIT_S)
        if run_id is None or self._runs is None:
            return NullRun()
        return MlflowRun(uri=self._server.uri, experiment_id=self._runs.experiment, run_id=run_id)

    def finish(self, record: Record) -> None:
        self._attempt("complete a run", lambda client, runs: runs.finish(client, record), wait_s=WAIT_S)

    def fail(self, key: str, reason: str, outcome: RunOutcome = "failed") -> None:
        self._attempt("end a run", lambda client, runs: runs.fail(client, key, reason, outcome), wait_s=WAIT_S)

    def finish_sweep(self, outcome: RunOutcome | None = None) -> None:
        self._server.look_again()  # the sweep is over: one more try costs nothing
        self._attempt("update the sweep", lambda client, runs: runs.close(client, outcome))

    def log_report(self, sweep: SweepRecord, folder: Path) -> None:
        self._adopt(sweep)
        with patience():
            self._attempt("log the report", lambda client, runs: runs.log_report(client, folder))

    def log_search(self, search: SearchRecord) -> dict[str, str]:
        runs = SearchRuns(search, self._store)
        return self._pages(runs, self._server.attempt(f"update the search {search.name}", runs.publish))

    def search_pages(self, search: SearchRecord) -> dict[str, str]:
        def experiment(client: MlflowClient) -> str | None:
            found = client.get_experiment_by_name(search.name)
            return None if found is None else str(found.experiment_id)

        return self._pages(
            SearchRuns(search, self._store), self._server.attempt(f"find the search {search.name}", experiment, wait_s=WAIT_S)
        )

    def _pages(self, runs: SearchRuns, experiment: str | None) -> dict[str, str]:
        return {} if experiment is None else {name: f"{self._server.page}/{page}" for name, page in runs.pages(experiment).items()}

    def register_best(self, sweep: SweepRecord) -> str | None:
        self._adopt(sweep)
        with patience():
            return self._attempt("register the best encoder", register_best_encoder)

    def _attempt(self, what: str, action: Callable[[MlflowClient, SweepRuns], Answer], *, wait_s: float | None = None) -> Answer | None:
        runs = self._runs
        assert runs is not None, "begin_sweep comes first"
        return self._server.attempt(f"{what} of {runs.sweep.name}", lambda client: action(client, runs), wait_s=wait_s)

    def _adopt(self, sweep: SweepRecord) -> None:
        """Load the runs for a report, which is made in a process that began no sweep."""
        if self._runs is None:
            self._runs = self._made(RunLayout.of_records(sweep, sweep.records(self._store)))

    def _made(self, layout: RunLayout) -> SweepRuns:
        return SweepRuns(layout, self._store, page=self._server.page)


def make_tracker(uri: str | None, store: ArtifactStore) -> Tracker:
    """Return the tracker for an address; without one, only the store keeps records."""
    return MlflowTracker(uri, store) if uri else NullTracker()
