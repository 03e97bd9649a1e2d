"""Show the trials of a search as runs on a server, and rebuild the runs of sweeps and searches from the store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from sentdist.errors import ResourceError, SentdistError
from sentdist.plan.dotted import short_names
from sentdist.plan.search import Search
from sentdist.plan.wording import value_text
from sentdist.store.record import not_understood
from sentdist.store.searches import (
    SearchRecord,
    SearchTrial,
    TrialEnded,
    TrialSuggested,
    find_search,
    read_curve,
    read_pruned_curve,
    search_names,
)
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep, method_title, sweep_names
from sentdist.text import colors_of, markdown_text
from sentdist.tracking.pages import SavedView, search_note, search_trial_note, search_views, view_page
from sentdist.tracking.run_update import PUBLISHED, REASON, RunLayout, RunUpdate
from sentdist.tracking.run_values import Point, curve_points, shown
from sentdist.tracking.server import (
    NOTE,
    PARENT,
    RunIdentity,
    Server,
    all_runs,
    at_once,
    create_run,
    ensure_experiment,
    ensure_run,
    patience,
)
from sentdist.tracking.sweep_runs import SweepRuns

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


SEARCH = "sentdist.search"  # on the run of the whole search; its trials have the next two
OF, TRIAL = "sentdist.search_of", "sentdist.search_trial"
TRAINING = "sentdist.search_training"  # by which a training finds the run of its trial
METHOD, STATE, COLOR = "sentdist.search_method", "sentdist.state", "mlflow.runColor"
# Pruning is a normal end. The tag, a column of the views, shows which runs were pruned.
STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
LEFT = " left"  # suffix of the stamp of an abandoned trial
MOST_LINES = 20

# Who writes: the process that runs the search, the same at its end, or one that only reads the record.
Driven = Literal["driven", "left", "seen"]
Published = dict[int, tuple[str, str]]  # trial -> its run, and the stamp of what the run shows


@dataclass(frozen=True)
class SearchRuns:
    """Brings the record of a search to a server; repeating it changes nothing. Methods may raise any error of the client."""

    record: SearchRecord
    store: ArtifactStore  # with the curves of finished and pruned trainings

    @property
    def views(self) -> tuple[SavedView, ...]:
        """A table of all trials, and parallel coordinates of each method that has fields."""
        fields = {self._title(method): self._columns(method) for method in self.record.methods}
        return search_views(fields, names={self._title(method): method for method in self.record.methods})

    def pages(self, experiment: str) -> dict[str, str]:
        """Return the page of each view by its name, relative to the server."""
        return {view.name: view_page(experiment, view.id, view.mode) for view in self.views}

    def publish(self, client: MlflowClient, driven: Driven = "seen", published: Published | None = None) -> str:
        """Write all trials; return the id of the experiment.

        Args:
            published: What this process has written already; updated.
        """
        experiment = self._open(client)
        parent = self._parent(client, experiment, driven)
        published = {} if published is None else published
        runs = {} if published else self._runs(client, experiment)
        published |= _stamps_of(runs)
        missing = [trial for trial in self.record.trials if trial.number not in published]
        runs |= self._make_all(client, experiment, parent, missing, driven)
        published |= _stamps_of(runs)
        is_new = {trial.number for trial in missing}

        def write(trial: SearchTrial) -> None:
            run_id, _ = published[trial.number]
            is_left = driven == "left" or (driven == "seen" and trial.number in is_new)
            self._write(client, runs.get(trial.number) or client.get_run(run_id), trial, driven, is_left=is_left)
            published[trial.number] = run_id, self._stamp(trial, is_left=is_left)

        at_once(write, [trial for trial in self.record.trials if not self._is_there(trial, published[trial.number][1], driven)])
        self._write_parent(client, experiment, parent, driven)
        return experiment

    def _open(self, client: MlflowClient) -> str:
        """The experiment, with its views."""
        record = self.record
        experiment = ensure_experiment(client, record.name, {"mlflow.experimentKind": "custom_model_development"})
        tags = dict(view.tag(place + 100) for place, view in enumerate(self.views))  # after those of a sweep
        there = client.get_experiment(experiment).tags
        if NOTE not in there:  # the sweep of its finalists writes a longer one
            tags[NOTE] = markdown_text(record.recipe.get("about") or "No `about` in the recipe.")
        for tag, value in tags.items():
            if there.get(tag) != value:
                client.set_experiment_tag(experiment, tag, value)
        return experiment

    def _parent(self, client: MlflowClient, experiment: str, driven: Driven) -> Run:
        record = self.record
        started_ms = int(1000 * record.events[0].at)
        found = ensure_run(
            client, experiment, name=f"search {record.name}", identity=(SEARCH, record.identity), tags={}, started_ms=started_ms
        )
        if driven == "driven" and record.reason is None and found.info.status != "RUNNING":
            client.update_run(found.info.run_id, status="RUNNING")
        return found

    def _runs(self, client: MlflowClient, experiment: str) -> dict[int, Run]:
        """The existing runs, by number of the trial; of two created at once the older one is kept."""
        mine = f"tags.`{OF}` = '{self.record.identity}'"
        found: dict[int, Run] = {}
        for run in sorted(all_runs(client, experiment, mine), key=lambda run: (run.info.start_time, run.info.run_id)):
            number = run.data.tags.get(TRIAL)
            if number is None:
                continue
            if int(number) in found:
                client.delete_run(run.info.run_id)
            else:
                found[int(number)] = run
        return found

    def _make_all(self, client: MlflowClient, experiment: str, parent: Run, missing: list[SearchTrial], driven: Driven) -> dict[int, Run]:
        """Create a run for each trial without one."""
        made = at_once(lambda trial: self._make(client, experiment, parent, trial), missing)
        if missing and driven == "seen":
            return self._runs(client, experiment)  # the process that runs the search may have created the same ones
        return {trial.number: run for trial, run in zip(missing, made, strict=True)}

    def _make(self, client: MlflowClient, experiment: str, parent: Run, trial: SearchTrial) -> Run:
        training, of_it = training_tag(self.record.identity, trial.train)
        tags = {
            PARENT: parent.info.run_id, OF: self.record.identity, METHOD: trial.method, COLOR: self._colors[trial.method], training: of_it,
        }  # fmt: skip
        given: RunIdentity = {
            "name": f"{self._title(trial.method)} · trial {trial.number}",
            "identity": (TRIAL, str(trial.number)),
            "tags": tags,
        }
        return create_run(client, experiment, started_ms=int(1000 * self._began[trial.number]), **given)

    def _write(self, client: MlflowClient, run: Run, trial: SearchTrial, driven: Driven, *, is_left: bool) -> None:
        """Update the run of a trial. is_left: whether the trial is abandoned."""
        if trial.state == "running" and driven == "driven" and run.info.status != "RUNNING":
            client.update_run(run.info.run_id, status="RUNNING")
        self._update(run, trial, is_left=is_left).send(client)

    def _write_parent(self, client: MlflowClient, experiment: str, parent: Run, driven: Driven) -> None:
        """Update the run of the whole search."""
        last_ms = int(1000 * self.record.events[-1].at)
        update = RunUpdate(parent)
        update.tags({NOTE: self._note(experiment)})
        update.figures(self._bests, last_ms, step=len(self.record.trials))
        if self.record.reason is not None:
            update.end("FINISHED", last_ms)
        elif driven == "left" or (driven == "seen" and NOTE not in parent.data.tags):
            update.end("KILLED")
        update.send(client)

    def _update(self, run: Run, trial: SearchTrial, *, is_left: bool) -> RunUpdate:
        update = RunUpdate(run)
        update.parameters({"method": trial.method, "trial": str(trial.number), **self._parameters(trial)})
        ended = self._ended.get(trial.number)
        if trial.rungs:
            last = trial.rungs[-1]
            numbers = {"best_dev_score": last.dev, "share_trained": last.share, "paid_s": trial.paid_s}
            counts = {"sentences": float(last.sentences), "paid_sentences": float(trial.paid_sentences)}
            update.figures({name: shown(value) for name, value in numbers.items()} | counts, int(1000 * last.at), step=len(trial.rungs))
            curve = self.curve(trial)
            scored = {point.step for point in curve if point.name == "dev_score"}
            rungs = [Point("dev_score", shown(one.last_dev), int(1000 * one.at), one.step) for one in trial.rungs if one.step not in scored]
            update.curve([*curve, *rungs])
        training, of_it = training_tag(self.record.identity, trial.train)
        note = search_trial_note(trial, search=self.record.name, settings=self._settings(trial))
        update.tags({STATE: trial.state, NOTE: note, training: of_it, **({REASON: trial.error} if trial.error else {})})
        if trial.state != "running":
            update.end(STATUS[trial.state], None if ended is None else int(1000 * ended))
        elif is_left or self.record.reason is not None:  # the search ended without it
            update.end("KILLED")
        update.tags({PUBLISHED: self._stamp(trial, is_left=is_left)})
        return update

    def curve(self, trial: SearchTrial) -> list[Point]:
        """Return the curve of a finished or pruned training; empty for others."""
        with suppress(SentdistError):  # a store that cannot be read, or a damaged file: the record has the figures
            if trial.state == "pruned":
                return curve_points(read_pruned_curve(self.store, trial.train))
            if trial.rungs and (place := trial.rungs[-1].place) is not None:
                return curve_points(read_curve(self.store, place))
        return []

    def _stamp(self, trial: SearchTrial, *, is_left: bool) -> str:
        """How much of a trial its run shows."""
        is_left = trial.state == "running" and (is_left or self.record.reason is not None)
        return f"{trial.state} {len(trial.rungs)}{LEFT if is_left else ''}"

    def _is_there(self, trial: SearchTrial, stamp: str, driven: Driven) -> bool:
        """Whether a run is up to date. A process that only reads the record cannot know whether a trial still runs, and keeps that."""
        if driven == "seen" and self.record.reason is None:
            return stamp.removesuffix(LEFT) == self._stamp(trial, is_left=False)
        return stamp == self._stamp(trial, is_left=driven == "left")

    def _parameters(self, trial: SearchTrial) -> dict[str, str]:
        """Values by short names; fields on a logarithmic scale also as their logarithm, since MLflow's axes are linear."""
        short = self._short
        found = {short[path]: value_text(value) for path, value in trial.suggestion.items()}
        logs = {
            f"log10 {short[path]}": f"{math.log10(value):.3f}"
            for path, value in trial.suggestion.items()
            if self._search.space[path].log is not None and isinstance(value, int | float)
        }
        return found | logs

    def _columns(self, method: str) -> list[str]:
        """Parameters that parallel coordinates show."""
        return [
            f"log10 {self._short[path]}" if self._search.space[path].log is not None else self._short[path]
            for path in self.record.methods[method]
        ]

    def _note(self, experiment: str) -> str:
        finished = [(trial.dev or 0.0, trial) for trial in self.record.trials if trial.state == "finished"]
        best = [
            (f"{self._title(trial.method)} · trial {trial.number}", self._settings(trial) or "as the recipe says", dev)
            for dev, trial in sorted(finished, key=lambda one: -one[0])[:MOST_LINES]
        ]
        return search_note(self.record, pages=self.pages(experiment), best=best)

    def _settings(self, trial: SearchTrial) -> str:
        return ", ".join(f"{self._short[path]} {value_text(value)}" for path, value in trial.suggestion.items())

    @property
    def _bests(self) -> dict[str, float]:
        scores = [trial.dev for trial in self.record.trials if trial.state == "finished" and trial.dev is not None]
        return {"best_dev_score": shown(max(scores))} if scores else {}

    def _title(self, method: str) -> str:
        return method_title(self.record.recipe, method)

    @cached_property
    def _short(self) -> Mapping[str, str]:
        return short_names(self.record.methods.values())

    @cached_property
    def _search(self) -> Search:
        return Search.model_validate(self.record.recipe["search"])

    @cached_property
    def _colors(self) -> dict[str, str]:
        return colors_of(self.record.methods)

    @cached_property
    def _began(self) -> dict[int, float]:
        return {event.number: event.at for event in reversed(self.record.events) if isinstance(event, TrialSuggested)}

    @cached_property
    def _ended(self) -> dict[int, float]:
        return {event.number: event.at for event in self.record.events if isinstance(event, TrialEnded)}


def _stamps_of(runs: Mapping[int, Run]) -> Published:
    return {number: (run.info.run_id, run.data.tags.get(PUBLISHED, "")) for number, run in runs.items()}


def training_tag(identity: str, train: str) -> tuple[str, str]:
    """Return the tag of a trial's run; `train` is the key of its whole training."""
    return TRAINING, f"{identity}-{train}"


@dataclass(frozen=True, kw_only=True)
class RebuiltSweep:
    """Counts of a rebuilt sweep."""

    name: str
    num_runs: int  # trials and shared stages that have a record
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
    remedy = "Check that the server runs and accepts requests, then try again."
    return ResourceError(where=f"sweep {name}", found=server.trouble, expected="", remedy=remedy)
