"""Show a running search on a server: its trials as runs, with their curves; the search does not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sentdist.store.searches import SearchEvent, search_record
from sentdist.store.store import ArtifactStore
from sentdist.text import PrintLine
from sentdist.tracking.mlflow_tracker import MlflowRun
from sentdist.tracking.run_values import Point
from sentdist.tracking.search_runs import Driven, Published, SearchRuns, training_tag
from sentdist.tracking.server import Server, find_run
from sentdist.tracking.tracker import NullTracker, RunHandle, Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient

EVERY_S = 2.0  # between two updates
FIND_S = 1.5 * EVERY_S  # limit for the end of a training to wait for the run of its trial
CLOSE_S = 60.0  # limit for the end of a search to wait for a slow server


class LiveSearch:
    """Context manager that follows a search in a thread and brings its events to the server.

    An outage costs one line; the thread tries again later, and once more at the end.

    Raises:
        RecipeError: `uri` is not the address of a server.
    """

    def __init__(self, uri: str, store: ArtifactStore, *, name: str, identity: str, print_line: PrintLine) -> None:
        self.tracker: Tracker = SearchTracker(uri, name=name, identity=identity)
        self._server = Server(uri)
        self._store, self._name, self._print_line = store, name, print_line
        self._events: Sequence[SearchEvent] = ()
        self._published: Published = {}
        self._num_printed = 0
        self._wake = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="sentdist-search", daemon=True)

    def __enter__(self) -> LiveSearch:
        self._thread.start()
        return self

    def __exit__(self, *of_error: object) -> None:
        self._is_over.set()
        self._wake.set()
        self._thread.join(CLOSE_S)

    def watch(self, events: Sequence[SearchEvent]) -> None:
        """Follow these events; a caller that adds to them calls this again."""
        self._events = events
        self._wake.set()

    def _serve(self) -> None:
        self._server.attempt(f"open the search {self._name}", lambda client: client.get_experiment_by_name(self._name))  # imports
        while not self._is_over.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._is_over.is_set():
                if not self._bring("driven"):
                    self._wake.set()  # try again
                self._is_over.wait(EVERY_S)
        self._server.look_again()
        self._bring("left")

    def _bring(self, driven: Driven) -> bool:
        """Bring all current events to the server; return whether it shows them."""
        events = tuple(self._events)
        if not events:
            return True
        runs = SearchRuns(search_record(self._name, events), self._store)
        found = self._server.attempt(f"update the search {self._name}", lambda client: runs.publish(client, driven, self._published))
        if found is None:
            self._published.clear()  # perhaps a run is gone: they are looked up again
        for warning in self._server.warnings[self._num_printed :]:
            self._print_line(f"tracking: {warning}")
        self._num_printed = len(self._server.warnings)
        return found is not None


class SearchTracker(NullTracker):
    """Sends the curve of a search's training to its trial's run, which `LiveSearch` creates. Picklable."""

    def __init__(self, uri: str, *, name: str, identity: str) -> None:
        self._uri, self._name, self._identity = uri, name, identity

    def begin(self, key: str) -> RunHandle:
        """Return the run of a training; `key` is that of the whole training, even if only a part is due."""
        return TrialRun(self._uri, name=self._name, identity=self._identity, train=key)


class TrialRun(MlflowRun):
    """The run of a training's trial, looked up when there is something to send; an entropy encoder has no trial and sends nothing."""

    def __init__(self, uri: str, *, name: str, identity: str, train: str) -> None:
        super().__init__(uri=uri, experiment_id="", run_id="")
        self._name, self._identity, self._train = name, identity, train

    def __reduce__(self) -> tuple[object, ...]:
        return _opened, (self._server.uri, self._name, self._identity, self._train)

    @property
    def url(self) -> str | None:
        return super().url if self.run_id else None

    def _send_new(self, client: MlflowClient, batch: Sequence[Point]) -> bool:
        until = time.monotonic() + (FIND_S if self._is_closing else 0.0)  # a training of a second may be over before its run is made
        while not self._is_found(client):
            if time.monotonic() >= until:
                return False
            time.sleep(0.5)
        return super()._send_new(client, batch)

    def _is_found(self, client: MlflowClient) -> bool:
        if not self.run_id:
            experiment = client.get_experiment_by_name(self._name)
            training = training_tag(self._identity, self._train)
            found = None if experiment is None else find_run(client, experiment.experiment_id, *training)
            if found is not None:
                self.experiment_id, self.run_id = found.info.experiment_id, found.info.run_id
        return bool(self.run_id)


def _opened(uri: str, name: str, identity: str, train: str) -> TrialRun:
    return TrialRun(uri, name=name, identity=identity, train=train)
