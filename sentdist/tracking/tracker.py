"""Interface from a sweep to its tracker, and trackers without a server; no MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from sentdist.plan.stage import Json, Stage
from sentdist.store.record import Record
from sentdist.store.searches import SearchRecord
from sentdist.store.sweep import SweepRecord

RunOutcome = Literal["failed", "stopped"]  # stopped: pruned by a scheduler or cancelled by a user


class RunHandle(Protocol):
    """Receives the progress of one training. Picklable: it travels to rank 0. No method raises or waits for a server."""

    @property
    def url(self) -> str | None:
        """Page of the run; None without a server."""
        ...

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Report the values of a line of a history (loss, grad_norm, lr, sentences_per_s, dev_score) at its step."""
        ...

    def watch_system(self) -> None:
        """Sample this machine's CPU, memory, network and GPUs until `close`."""
        ...

    def close(self, *, timeout_s: float = 5.0) -> list[str]:
        """Send what is left within `timeout_s`; return the warnings of this handle."""
        ...


class Tracker(Protocol):
    """A picklable listener to a sweep. No method raises because of a server; its errors become `warnings`.

    A stage is named by its key. Scores (whose key is the trial's), and a training that only one trial needs, belong to the trial's run;
    every other stage has a separate run.
    """

    @property
    def warnings(self) -> Sequence[str]: ...

    def begin_sweep(self, sweep: SweepRecord, stages: Mapping[str, Stage]) -> None:
        """Open or find the run of the sweep, which has these stages by key."""
        ...

    def begin(self, key: str) -> RunHandle:
        """Open or find the run for the progress of a stage or trial."""
        ...

    def finish(self, record: Record) -> None:
        """Complete the run of a stored stage from its record and history."""
        ...

    def fail(self, key: str, reason: str, outcome: RunOutcome = "failed") -> None:
        """Report that a stage or trial ended without an artifact."""
        ...

    def finish_sweep(self, outcome: RunOutcome | None = None) -> None:
        """Update every run from the store, link runs to each other, and end the sweep's run."""
        ...

    def log_report(self, sweep: SweepRecord, folder: Path) -> None:
        """Log a report's tables and figures on the sweep's run, with a summary of the trials."""
        ...

    def log_search(self, search: SearchRecord) -> dict[str, str]:
        """Update the trials of a search; return the pages that show them, by name, empty if no server answers."""
        ...

    def search_pages(self, search: SearchRecord) -> dict[str, str]:
        """Return the pages of `log_search` that exist already; write nothing."""
        ...

    @property
    def trials_page(self) -> str | None:
        """Page of the sweep's trials, best first; None if no server answers."""
        ...

    def register_best(self, sweep: SweepRecord) -> str | None:
        """Register the encoder that dev chose; return the address of the model, None if there is none."""
        ...


class NullRun:
    """A run that is not kept."""

    @property
    def url(self) -> str | None:
        return None

    def metrics(self, values: Mapping[str, float], *, step: int) -> None: ...

    def watch_system(self) -> None: ...

    def close(self, *, timeout_s: float = 5.0) -> list[str]:
        return []


class TrackedCurve:
    """Passes new lines of a history to a run; the first `num_sent` were sent before."""

    def __init__(self, run: RunHandle, history: Sequence[Mapping[str, Json]], *, num_sent: int = 0) -> None:
        self.run = run
        self._history = history
        self._num_sent = num_sent

    def follow(self) -> None:
        """Send new lines; never waits."""
        for point in self._history[self._num_sent :]:
            values = {name: float(value) for name, value in point.items() if name not in ("step", "at") and isinstance(value, int | float)}
            self.run.metrics(values, step=int(str(point["step"])))
        self._num_sent = len(self._history)


class NullTracker:
    """Tracks nothing: without a server, the records and histories in the store are the log."""

    warnings: Sequence[str] = ()

    def begin_sweep(self, sweep: SweepRecord, stages: Mapping[str, Stage]) -> None: ...

    def begin(self, key: str) -> RunHandle:
        return NullRun()

    def finish(self, record: Record) -> None: ...

    def fail(self, key: str, reason: str, outcome: RunOutcome = "failed") -> None: ...

    def finish_sweep(self, outcome: RunOutcome | None = None) -> None: ...

    def log_report(self, sweep: SweepRecord, folder: Path) -> None: ...

    def log_search(self, search: SearchRecord) -> dict[str, str]:
        return {}

    def search_pages(self, search: SearchRecord) -> dict[str, str]:
        return {}

    @property
    def trials_page(self) -> str | None:
        return None

    def register_best(self, sweep: SweepRecord) -> str | None:
        return None
