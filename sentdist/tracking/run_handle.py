"""The way from one training to its MLflow run: a queue, and a thread that empties it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sentdist.tracking.run_update import add_metrics
from sentdist.tracking.server import Server
from sentdist.tracking.shown_metrics import Point, curve_metrics
from sentdist.tracking.system import SystemSampler

if TYPE_CHECKING:
    from mlflow import MlflowClient

SEND_EVERY_S = 1.0
SAMPLE_EVERY_S = 10.0
MAX_WAITING = 100_000  # points kept while the server is away; the history in the store has them all


class MlflowRun:
    """A run handle for one process. Pickled, it travels as address and run id; the thread starts with the first message.

    Points that the run has already (a training that went back to its checkpoint repeats steps) are not sent again.
    """

    def __init__(self, *, uri: str, experiment_id: str, run_id: str) -> None:
        self.experiment_id = experiment_id
        self.run_id = run_id
        self._server = Server(uri)
        self._queue: deque[tuple[dict[str, float], int, int]] = deque(maxlen=MAX_WAITING)  # values of a step, time in ms, step
        self._waiting: deque[Point] = deque(maxlen=MAX_WAITING)  # the thread's own
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
        """Queue the values of one step; see `RunHandle.metrics`. The step pays for no more than that: the thread does the rest."""
        self._queue.append((dict(values), int(time.time() * 1000), step))
        self._start()

    def watch_system(self) -> None:
        """Sample this machine every 10 s until `close`."""
        self._watches_system = True
        self._start()

    def close(self, *, timeout_s: float = 5.0) -> list[str]:
        """Send what is left within the time given; what remains stands in the history and is filled in by `finish` or `rebuild`."""
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
