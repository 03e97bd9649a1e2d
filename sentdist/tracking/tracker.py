"""What a sweep or search reports while it runs, and how MLflow shows it. Everything can be rebuilt from the store."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sentdist.errors import ResourceError
from sentdist.machine import environment_with
from sentdist.recipe.stage import Json, Stage
from sentdist.store.record import Record, not_understood
from sentdist.store.searches import SearchRecord, find_search, search_names
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, load_sweep, sweep_names
from sentdist.tracking.registry import register_best_encoder
from sentdist.tracking.runs import TRAIN, RunOutcome, SearchRuns, SweepRuns, all_runs
from sentdist.tracking.server import PATIENT, Server
from sentdist.tracking.values import Point, curve_points
from sentdist.tracking.views import run_page, view_pages

if TYPE_CHECKING:
    from mlflow import MlflowClient

Answer = TypeVar("Answer")
SEND_EVERY_S = 1.0
MAX_WAITING = 100_000  # points kept while the server is away; the history in the store has them all


class Run:
    """Receives the progress of one training, and keeps nothing. No method raises or waits for a server."""

    url: str | None = None  # page of the run

    def follow(self, history: Sequence[Mapping[str, Json]]) -> None:
        """Report the new lines of the training's history."""

    def close(self, *, timeout_s: float = 5.0) -> list[str]:
        """Send what is left within `timeout_s`; return the warnings of this run."""
        return []


class MlflowRun(Run):
    """Sends a training's curve from a thread, once a second; MLflow's asynchronous logging sends a request for every step."""

    def __init__(self, *, uri: str, experiment: str, run_id: str) -> None:
        self.run_id = run_id
        self._server = Server(uri)
        self.url = f"{self._server.page}/{run_page(experiment, run_id)}"
        self._waiting: deque[Point] = deque(maxlen=MAX_WAITING)
        self._num_read = 0  # lines of the history
        self._known: dict[str, set[int]] = {}  # steps that the run has already: a training that resumes repeats some
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, history: Sequence[Mapping[str, Json]]) -> None:
        self._waiting.extend(curve_points(history[self._num_read :]))
        self._num_read = len(history)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="sentdist-mlflow", daemon=True)
            self._thread.start()

    def close(self, *, timeout_s: float = 5.0) -> list[str]:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        return list(self._server.warnings)

    def _serve(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(SEND_EVERY_S)
            if is_last:
                self._server.look_again()
            while self._waiting and self._send():
                pass

    def _send(self) -> bool:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), 1000))]
        if self._server.attempt("send metrics", lambda client: self._log(client, batch)):
            return True
        self._waiting.extendleft(reversed(batch))
        return False

    def _log(self, client: MlflowClient, batch: Sequence[Point]) -> bool:
        from mlflow.entities import Metric

        for name in {point.name for point in batch} - self._known.keys():
            self._known[name] = {metric.step for metric in client.get_metric_history(self.run_id, name)}
        new = [point for point in batch if point.step not in self._known[point.name]]
        client.log_batch(self.run_id, metrics=[Metric(*point) for point in new])
        for point in new:
            self._known[point.name].add(point.step)
        return True


class Tracker:
    """A picklable listener to a sweep or search; without an address it keeps nothing, and the store is the log.

    No method raises because of a server; its errors become `warnings`. A stage is named by its key. Runs are found by their tags, so a
    restart, another process or a rebuild continues them. The run of a trial shows its scores and its training; other stages have no run.

    Raises:
        RecipeError: `uri` is not the address of a server.
    """

    def __init__(self, uri: str | None = None, store: ArtifactStore | None = None) -> None:
        self._server = Server(uri) if uri else None
        self._store = store
        self._runs: SweepRuns | None = None
        self._search: SearchRecord | None = None  # that runs, as last watched

    def __getstate__(self) -> dict[str, object]:
        trials_apart = None if self._search is None else self._search.model_copy(update={"trials": ()})
        return self.__dict__ | {"_search": trials_apart}

    @property
    def warnings(self) -> Sequence[str]:
        return tuple(self._server.warnings) if self._server else ()

    @property
    def trials_page(self) -> str | None:
        """Page of the sweep's trials, best first; None if no server answers."""
        if not self._server or not self._runs or not self._runs.experiment:
            return None
        return f"{self._server.page}/{next(iter(view_pages(self._runs.experiment, self._runs.views).values()))}"

    def begin_sweep(self, sweep: SweepRecord, stages: Mapping[str, Stage]) -> None:
        """Open or find the run of the sweep, which has these stages by key."""
        if self._store is not None:
            self._runs = SweepRuns(sweep, stages, self._store)
        self._attempt("open the sweep", lambda client, runs: runs.open(client, is_running=True))

    def begin(self, key: str) -> Run:
        """Open or find the run for the progress of a trial's training."""
        found = self._attempt("open a run", lambda client, runs: runs.begin(client, key))
        if self._server and (search := self._search) and not self._runs:
            found = self._server.attempt("find a run", lambda client: _searched(client, search.name, key))
        return Run() if not self._server or not found else MlflowRun(uri=self._server.uri, experiment=found[0], run_id=found[1])

    def finish(self, record: Record) -> None:
        """Complete the run of a stored stage from its record and history."""
        self._attempt("complete a run", lambda client, runs: runs.finish(client, record))

    def fail(self, key: str, reason: str, outcome: RunOutcome = "failed") -> None:
        """Report that a stage or trial ended without an artifact."""
        self._attempt("end a run", lambda client, runs: runs.fail(client, key, reason, outcome))

    def finish_sweep(self, outcome: RunOutcome | None = None) -> None:
        """Update every run from the store, and end the sweep's run."""
        if self._server:
            self._server.look_again()  # the sweep is over: one more try costs nothing
        self._attempt("update the sweep", lambda client, runs: runs.close(client, outcome))

    def log_report(self, sweep: SweepRecord, folder: Path) -> None:
        """Log a report's tables and figures on the sweep's run."""
        self._adopt(sweep)
        with environment_with(PATIENT):
            self._attempt("log the report", lambda client, runs: runs.log_report(client, folder))

    def register_best(self, sweep: SweepRecord) -> str | None:
        """Register the encoder that dev chose; return the address of the model, None if there is none."""
        self._adopt(sweep)
        with environment_with(PATIENT):
            return self._attempt("register the best encoder", register_best_encoder)

    def watch_search(self, record: SearchRecord, running: str = "RUNNING") -> None:
        """Show the trials of a search after each change, so that their trainings find their runs."""
        self._search = record
        if self._server and self._store:
            runs = SearchRuns(record, self._store)
            self._server.attempt(f"update the search {record.name}", lambda client: runs.publish(client, running=running))

    def finish_search(self) -> None:
        """Show the trials of a search that has ended or is left."""
        if self._server and self._search:
            self._server.look_again()
            self.watch_search(self._search, running="KILLED")

    def _attempt(self, what: str, action: Callable[[MlflowClient, SweepRuns], Answer]) -> Answer | None:
        runs = self._runs  # none during a search, whose record says the same
        return self._server.attempt(f"{what} of {runs.sweep.name}", lambda client: action(client, runs)) if self._server and runs else None

    def _adopt(self, sweep: SweepRecord) -> None:
        """Load the runs for a report, which is made in a process that began no sweep."""
        if self._runs is None and self._store is not None:
            self._runs = SweepRuns.of_records(sweep, self._store, sweep.records(self._store))


def _searched(client: MlflowClient, name: str, key: str) -> tuple[str, str] | None:
    """Experiment and run of a search's training; an entropy encoder has none."""
    experiment = client.get_experiment_by_name(name)
    found = [] if experiment is None else all_runs(client, experiment.experiment_id, f"tags.`{TRAIN}` = '{key}'")
    return next(((run.info.experiment_id, run.info.run_id) for run in found), None)


@dataclass(frozen=True, kw_only=True)
class RebuiltSweep:
    """Counts of a rebuilt sweep."""

    name: str
    num_runs: int  # trials that have a record
    num_trials: int
    num_scored: int
    not_understood: tuple[str, ...] = ()  # places of records of another version, whose runs have no parameters


def rebuild(
    store: ArtifactStore, tracking_uri: str, name: str | None = None, *, failures: Mapping[str, str] | None = None
) -> list[RebuiltSweep]:
    """Create or complete the runs of one sweep, or of all in the store; repeating it changes nothing.

    Args:
        failures: Key of a trial -> why it failed just now, which no record has.

    Raises:
        RecipeError: not the address of a server.
        StoreError: no sweep of that name.
        ResourceError: the server is away or refuses; runs written before stay.
    """
    server = Server(tracking_uri)
    names = [name] if name else list(dict.fromkeys([*sweep_names(store), *search_names(store)]))

    def bring(what: str, action: Callable[[MlflowClient], Answer]) -> Answer:
        with environment_with(PATIENT):
            answer = server.attempt(f"rebuild {what}", action)
        if answer is None:
            raise ResourceError(
                where=what, found=server.trouble, expected="", remedy="Check that the server runs and accepts requests, then try again."
            )
        return answer

    def rebuilt(name: str) -> RebuiltSweep:
        search = find_search(store, name)
        if search is not None:
            bring(f"the search {name}", SearchRuns(search, store).publish)
            if name not in sweep_names(store):  # no finalist yet
                scored = sum(trial.dev is not None for trial in search.trials)
                return RebuiltSweep(name=name, num_runs=len(search.trials), num_trials=len(search.trials), num_scored=scored)
        sweep = load_sweep(store, name)
        records = sweep.records(store)
        runs = SweepRuns.of_records(sweep, store, records)
        touched = bring(f"the sweep {name}", lambda client: runs.rebuild(client, records, failures or {}))
        return RebuiltSweep(
            name=name, num_runs=touched, num_trials=len(runs.trials), num_scored=len(runs.trials.keys() & records.keys()),
            not_understood=tuple(not_understood(records)),
        )  # fmt: skip

    return [rebuilt(found) for found in names]
