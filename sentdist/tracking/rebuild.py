"""How a store is brought into MLflow afterwards: whatever the server missed is there in records and histories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sentdist.errors import ResourceError
from sentdist.store.restored import not_understood
from sentdist.store.searches import SearchRecord, find_search, search_names
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep, sweep_names
from sentdist.tracking.run_layout import RunLayout
from sentdist.tracking.search_runs import SearchRuns
from sentdist.tracking.server import Server, patience
from sentdist.tracking.sweep_runs import SweepRuns


@dataclass(frozen=True, kw_only=True)
class RebuiltSweep:
    """One sweep that was brought in."""

    name: str
    num_runs: int  # trials and shared stages that have a record
    num_trials: int
    num_scored: int
    not_understood: tuple[str, ...] = ()  # places of records of another version, whose runs have no parameters


def rebuild(
    store: ArtifactStore, tracking_uri: str, name: str | None = None, *, failures: Mapping[str, str] | None = None
) -> list[RebuiltSweep]:
    """(Re)create the runs of one sweep, or of all in the store, and fill in what is missing; doing it twice changes nothing.

    failures: key of a trial -> why it failed just now, which no record says.

    Raises:
        RecipeError: the address is none of a server.
        StoreError: no sweep of that name.
        ResourceError: the server is away or refuses; what was brought in stays.
    """
    names = [name] if name else list(dict.fromkeys([*sweep_names(store), *search_names(store)]))
    return [_rebuild(store, tracking_uri, found, failures or {}) for found in names]


def _rebuild(store: ArtifactStore, uri: str, name: str, failures: Mapping[str, str]) -> RebuiltSweep:
    search = find_search(store, name)
    if search is not None:
        _rebuild_search(search, store, uri)
        if name not in sweep_names(store):  # no finalist yet
            scored = sum(trial.dev is not None for trial in search.trials)
            return RebuiltSweep(name=name, num_runs=len(search.trials), num_trials=len(search.trials), num_scored=scored)
    sweep = load_sweep(store, name)
    records = sweep.records(store)
    server = Server(uri)
    layout = RunLayout.of_records(sweep, records)
    runs = SweepRuns(layout, store, page=server.page)
    with patience():
        touched = server.attempt(f"rebuild the sweep {name}", lambda client: runs.rebuild(client, records, failures))
    if touched is None:
        raise _away(name, server)
    num_scored = sum(key in records for key in layout.trials)
    return RebuiltSweep(
        name=name, num_runs=touched, num_trials=len(layout.trials), num_scored=num_scored, not_understood=tuple(not_understood(records))
    )


def _rebuild_search(search: SearchRecord, store: ArtifactStore, uri: str) -> None:
    server = Server(uri)
    with patience():
        if server.attempt(f"rebuild the search {search.name}", SearchRuns(search, store).publish) is None:
            raise _away(search.name, server)


def _away(name: str, server: Server) -> ResourceError:
    return ResourceError(
        where=f"sweep {name}", found=server.trouble, expected="", remedy="See that the server runs and takes requests, then try again."
    )
