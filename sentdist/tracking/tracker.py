"""What a sweep reports to its tracker; nothing here knows MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from sentdist.plan.stage import Json, Stage
from sentdist.store.record import Record
from sentdist.store.searches import SearchRecord
from sentdist.store.sweep import SweepRecord

RunOutcome = Literal["failed", "stopped"]  # stopped: pruned by a scheduler or cancelled by a person


class RunHandle(Protocol):
    """Where one training tells its progress. Picklable: it travels to rank 0. No method raises or waits for a server."""

    @property
    def url(self) -> str | None:
        """Page of the run; None without a server."""
        ...

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Take the values of a line of a history (loss, grad_norm, lr, sentences_per_s, dev_score) at its step."""
        ...

    def watch_system(self) -> None:
        """From now until `close`, sample this machine's processor, memory, network and GPUs."""
        ...

    def close(self, *, timeout_s: float = 5.0) -> list[str]:
        """Send what is left, waiting at most so long; returns the warnings of this handle."""
        ...


class Tracker(Protocol):
    """A picklable listener to a sweep. No method raises because of a server; mishaps stand in `warnings`.

    A stage is named by its key. The trial's own last training and its scores (whose key is the trial's) belong to the trial's run, every
    other stage has a run of its own; the tracker knows which from the sweep.
    """

    @property
    def warnings(self) -> Sequence[str]: ...

    def begin_sweep(self, sweep: SweepRecord, stages: Mapping[str, Stage]) -> None:
        """Open or find the sweep's run. `stages`: all its stages, by key."""
        ...

    def begin(self, key: str) -> RunHandle:
        """Open or find the run to which the progress of a stage (or trial) belongs."""
        ...

    def finish(self, record: Record) -> None:
        """A stage is in the store: complete its run from the record and the history beside it."""
        ...

    def fail(self, key: str, reason: str, outcome: RunOutcome = "failed") -> None:
        """A stage or trial ended without an artifact."""
        ...

    def finish_sweep(self, outcome: RunOutcome | None = None) -> None:
        """Bring every run up to date with the store, link them to each other, and end the sweep's run."""
        ...

    def log_report(self, sweep: SweepRecord, folder: Path) -> None:
        """Keep a report's tables and figures on the sweep's run, with a summary of the trials."""
        ...

    def log_search(self, search: SearchRecord) -> dict[str, str]:
        """Bring the trials of a search up to date; returns the pages that show them, by name: none without a server that answers."""
        ...

    def search_pages(self, search: SearchRecord) -> dict[str, str]:
        """The same pages, where they are there already; nothing is written."""
        ...

    @property
    def trials_page(self) -> str | None:
        """Where the trials of the sweep stand, best first; None without a server that answers."""
        ...

    def register_best(self, sweep: SweepRecord) -> str | None:
        """Register the encoder that dev chose; returns the address of the model, None if there is none."""
        ...


class NullRun:
    """A run that nobody keeps."""

    @property
    def url(self) -> str | None:
        return None

    def metrics(self, values: Mapping[str, float], *, step: int) -> None: ...

    def watch_system(self) -> None: ...

    def close(self, *, timeout_s: float = 5.0) -> list[str]:
        return []


class TrackedCurve:
    """Gives a run the lines of a history that came since the last look. num_sent: lines that others have sent before."""

    def __init__(self, run: RunHandle, history: Sequence[Mapping[str, Json]], *, num_sent: int = 0) -> None:
        self.run = run
        self._history = history
        self._num_sent = num_sent

    def follow(self) -> None:
        """Look for more; never waits."""
        for point in self._history[self._num_sent :]:
            values = {name: float(value) for name, value in point.items() if name not in ("step", "at") and isinstance(value, int | float)}
            self.run.metrics(values, step=int(str(point["step"])))
        self._num_sent = len(self._history)


class NullTracker:
    """Keeps track of nothing: without a server, the records and histories in the store are the log."""

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
