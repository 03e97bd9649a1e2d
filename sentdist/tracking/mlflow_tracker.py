"""The tracker that keeps a sweep in MLflow: it guards every message, so that no server can stop or slow a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sentdist.plan.stage import Stage
from sentdist.store.record import Record
from sentdist.store.searches import SearchRecord
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord
from sentdist.tracking.registry import register_best_encoder
from sentdist.tracking.run_handle import MlflowRun
from sentdist.tracking.run_layout import RunLayout
from sentdist.tracking.search_runs import SearchRuns
from sentdist.tracking.server import Server, patience
from sentdist.tracking.sweep_runs import SweepRuns
from sentdist.tracking.tracker import NullRun, NullTracker, RunHandle, RunOutcome, Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient

Answer = TypeVar("Answer")

WAIT_S = 8.0  # for a message that a training waits for, a dozen small requests; the end of the sweep brings what was not sent


class MlflowTracker:
    """See `Tracker`. Runs are found again by their tags, so a restart, another process or a rebuild adds to them and makes no second ones.

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
        self._server.look_again()  # the sweep is over: one more try costs nobody anything
        self._attempt("bring the sweep up to date", lambda client, runs: runs.close(client, outcome))

    def log_report(self, sweep: SweepRecord, folder: Path) -> None:
        self._adopt(sweep)
        with patience():
            self._attempt("log the report", lambda client, runs: runs.log_report(client, folder))

    def log_search(self, search: SearchRecord) -> dict[str, str]:
        runs = SearchRuns(search, self._store)
        return self._pages(runs, self._server.attempt(f"bring the search {search.name} up to date", runs.publish))

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
        """A report is made by a process of its own, which has begun no sweep."""
        if self._runs is None:
            self._runs = self._made(RunLayout.of_records(sweep, sweep.records(self._store)))

    def _made(self, layout: RunLayout) -> SweepRuns:
        return SweepRuns(layout, self._store, page=self._server.page)


def make_tracker(uri: str | None, store: ArtifactStore) -> Tracker:
    """The tracker for an address; without one, nothing but the store keeps track."""
    return MlflowTracker(uri, store) if uri else NullTracker()
