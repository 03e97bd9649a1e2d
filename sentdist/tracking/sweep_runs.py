"""Create and update the runs of a sweep on a server: their content, status and links."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.store.chosen import cells_by_dev
from sentdist.store.record import Record
from sentdist.store.searches import read_curve
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord
from sentdist.text import colors_of
from sentdist.tracking import pages, sweep_summary
from sentdist.tracking.pages import CELL, METHOD, Link, SavedView, artifact_page, run_page, view_page, views
from sentdist.tracking.run_update import PUBLISHED, REASON, RunLayout, RunUpdate, began_ms, closed_ms, first_ms, now_ms
from sentdist.tracking.run_values import curve_points, final_metrics, metric_name
from sentdist.tracking.server import (
    NOTE,
    PARENT,
    RunIdentity,
    all_runs,
    at_once,
    create_run,
    ensure_experiment,
    ensure_run,
    find_run,
    user_name,
)
from sentdist.tracking.tracker import RunOutcome

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STATUS: dict[RunOutcome, str] = {"failed": "FAILED", "stopped": "KILLED"}
STORE = "sentdist.store"  # of the run's driver: a driver with another store may run a sweep of the same name
COLOR = "mlflow.runColor"  # in charts: the same for all seeds of a cell
MODEL = "sentdist.model"
RECORDS = "records.json"  # of a run's stages
REPORT = "sentdist.report"  # the report's page among the artifacts


class SweepRuns:
    """Creates, finds and updates the runs of a sweep; repeating a call changes nothing.

    Methods may raise any error of the client. Holds no client, so it can be pickled.
    """

    def __init__(self, layout: RunLayout, store: ArtifactStore, *, page: str) -> None:
        self.layout = layout
        self.store = store
        self.experiment = ""
        self.parent: str | None = None
        self._page = page
        self._run_ids: dict[str, str] = {}  # owner -> run, as far as known

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_run_ids": dict(self._run_ids)}  # an attempt that timed out may still add to it

    @property
    def trials_page(self) -> str:
        """Page of the trials, relative to the server; the experiment must be known."""
        first = self._views[0]
        return view_page(self.experiment, first.id, first.mode)

    @property
    def sweep(self) -> SweepRecord:
        return self.layout.sweep

    def open(self, client: MlflowClient, *, is_running: bool, started_ms: int | None = None) -> None:
        """Find or create the experiment with its views, and the sweep's run with the recipe, begun at `started_ms` or now."""
        sweep = self.sweep
        tags = {
            "mlflow.experiment.primaryMetric.name": sweep_summary.order_metric(sweep),
            "mlflow.experiment.primaryMetric.greaterIsBetter": "true",
            "mlflow.experimentKind": "custom_model_development",  # the default is pages for language-model applications
        }
        self.experiment = ensure_experiment(client, sweep.name, tags)
        shown = {NOTE: pages.experiment_note(sweep)} | dict(view.tag(place) for place, view in enumerate(self._views))
        there = client.get_experiment(self.experiment).tags
        for tag, value in shown.items():
            if there.get(tag) != value:
                client.set_experiment_tag(self.experiment, tag, value)
        name, identity = f"sweep {sweep.name}", ("sentdist.sweep", sweep.name)
        run = ensure_run(client, self.experiment, name=name, identity=identity, tags=self._source_tags(), started_ms=started_ms)
        self.parent = run.info.run_id
        if is_running and run.info.status != "RUNNING":
            client.update_run(self.parent, status="RUNNING")
        client.log_dict(self.parent, json.loads(json.dumps(sweep.recipe)), "recipe.yaml")
        update = RunUpdate(run)
        update.inputs(self.layout.common_data_sets)
        if is_running and NOTE not in run.data.tags:
            update.tags({NOTE: pages.sweep_note(sweep, {}, trials={}, views=self._view_links, store=self._address(""))})
        update.send(client)

    def begin(self, client: MlflowClient, key: str) -> str:
        """Return the id of the run for a stage that is about to be built."""
        owner = self.layout.owner(key)
        run = self._ensure(client, owner)
        if run.info.status != "RUNNING" and PUBLISHED not in run.data.tags:
            client.update_run(run.info.run_id, status="RUNNING")
        self._find_inputs(client, owner)
        update = self._update(run, owner, {})
        update.tags({STORE: self._address("")})
        update.send(client)
        return str(run.info.run_id)

    def run_of(self, client: MlflowClient, owner: str) -> str:
        """Return the id of the run of a trial or shared stage, created if missing."""
        return str(self._ensure(client, owner).info.run_id)

    def finish(self, client: MlflowClient, record: Record) -> None:
        """Complete the run of a finished stage, as far as its records go."""
        owner = self.layout.owner(record.key)
        own = self._own_records(owner) | {record.key: record}
        self._find_inputs(client, owner)
        run = self._ensure(client, owner, started_ms=min(map(began_ms, own.values())))
        self._update(run, owner, own).send(client)

    def fail(self, client: MlflowClient, key: str, reason: str, outcome: RunOutcome) -> None:
        owner = self.layout.owner(key)
        self._find_inputs(client, owner)
        update = self._update(self._ensure(client, owner), owner, {}, reason=reason)
        update.tags({REASON: reason})
        update.end(STATUS[outcome])
        update.send(client)

    def close(self, client: MlflowClient, outcome: RunOutcome | None) -> None:
        """Update all runs and end them: runs of this store that are still running were left by a process that died."""
        self.open(client, is_running=True)
        records = self.sweep.records(self.store)
        self.refresh(client, records)
        left = f"tags.`{PARENT}` = '{self._parent_id}' and attributes.status = 'RUNNING'"
        for run in list(all_runs(client, self.experiment, left)):
            if run.data.tags.get(STORE, self._address("")) == self._address(""):
                client.set_terminated(run.info.run_id, "KILLED")
        is_complete = all(key in records for key in self.layout.trials)
        client.set_terminated(self._parent_id, _ended(outcome, is_complete=is_complete))

    def refresh(self, client: MlflowClient, records: Mapping[str, Record]) -> int:
        """Write to the runs what they lack of the records; return how many runs have a record.

        All runs are created before any is written, so each is written once, with its links.
        """
        records_of = {
            owner: own for owner in (*self.layout.shared, *self.layout.trials) if (own := self.layout.shown_records(owner, records))
        }
        runs = self._look_up(client)
        missing = [owner for owner in records_of if owner not in runs]
        if missing:
            began = {owner: min(map(began_ms, records_of[owner].values())) for owner in missing}
            at_once(lambda owner: create_run(client, self.experiment, **self._described(owner), started_ms=began[owner]), missing)
            runs = self._look_up(client)  # again: another driver may have created the same ones
        unscored = {owner for owner in missing if owner not in records_of[owner]}
        of_trials, of_cells = sweep_summary.compared(self.sweep, records)

        def write(owner: str) -> None:
            update = self._update(runs[owner], owner, records_of.get(owner, {}))
            if owner in unscored:
                update.end("KILLED")
            update.figures(of_trials.get(owner, {}), now_ms())
            update.send(client)

        at_once(write, [owner for owner in runs if owner in self.layout.sweep.places])
        at_once(lambda run: client.delete_tag(run.info.run_id, CELL), [run for owner, run in runs.items() if self._has_left(owner, run)])
        self._write_methods(client, runs, of_cells)
        self.summarize(client, records)
        return len(records_of)

    def _write_methods(self, client: MlflowClient, runs: Mapping[str, Run], means: Mapping[str, Mapping[str, float]]) -> None:
        """Write a run with means for each method: MLflow's means of grouped runs have sixteen digits."""

        def write(label: str) -> None:
            run = runs.get(label) or create_run(client, self.experiment, name=label, identity=(METHOD, label), tags=self._child_tags())
            update = RunUpdate(run)
            update.figures(means[label], now_ms())
            trials = [self._link(trial.key) for trial in self.sweep.cells[label]]
            update.tags({NOTE: pages.method_note(self.sweep, label, trials=trials), COLOR: self._colors[label]})
            update.end("FINISHED")
            update.send(client)

        gone = [run for label, run in runs.items() if METHOD in run.data.tags and label not in means and self._is_ours(run)]
        at_once(write, list(means))
        at_once(lambda run: client.delete_run(run.info.run_id), gone)

    def summarize(self, client: MlflowClient, records: Mapping[str, Record]) -> None:
        """Write the result table to the sweep's run, as note, CSV and metrics."""
        sweep, rows = self.sweep, sweep_summary.summary_rows(self.sweep, records)
        run = client.get_run(self._parent_id)
        note = pages.sweep_note(
            sweep,
            records,
            trials={key: self._link(key) for key in self.layout.trials},
            views=[*self._view_links, *self._report_link(run)],
            store=self._address(""),
            model=run.data.tags.get(MODEL),
        )
        figures = sweep_summary.choice_metrics(sweep, records)
        stale = [name for name, value in figures.items() if run.data.metrics.get(name, value) != value]
        if run.data.tags.get(NOTE) == note and not stale:
            return
        client.log_text(self._parent_id, sweep_summary.summary_csv(rows), "summary.csv")
        update = RunUpdate(run)
        # MLflow shows the value of the latest step; a stopped sweep, or one with other cells, showed another best value.
        steps = [point.step + 1 for name in stale for point in client.get_metric_history(self._parent_id, name)]
        update.figures(figures, max(map(closed_ms, records.values()), default=0), step=max([len(rows), *steps]))
        cells = cells_by_dev(sweep, records)
        update.tags({NOTE: note} | ({"sentdist.best": cells[0].label} if cells else {}))
        update.send(client)

    def log_report(self, client: MlflowClient, folder: Path) -> None:
        """Log the files of a report below `report/` on the sweep's run."""
        records = self.sweep.records(self.store)
        self.open(client, is_running=False, started_ms=first_ms(records))
        if NOTE not in client.get_run(self._parent_id).data.tags:  # this server has nothing of the sweep yet
            self.rebuild(client, records, {})
        self._look_up(client)
        client.log_artifacts(self._parent_id, str(folder), "report")
        if (folder / "report.html").exists():
            client.set_tag(self._parent_id, REPORT, "report/report.html")
        self.summarize(client, records)

    def rebuild(self, client: MlflowClient, records: Mapping[str, Record], failures: Mapping[str, str]) -> int:
        """Refresh a sweep that another process may run: running runs stay so. `failures`: see `search_runs.rebuild`."""
        self.open(client, is_running=False, started_ms=first_ms(records))
        is_new = NOTE not in client.get_run(self._parent_id).data.tags
        touched = self.refresh(client, records)
        for key, reason in failures.items():
            self.fail(client, key, reason, "failed")
        if not all(key in records for key in self.layout.trials):
            if is_new or failures:
                client.set_terminated(self._parent_id, "FAILED" if failures else "KILLED")
        elif client.get_run(self._parent_id).info.status != "FINISHED":
            client.set_terminated(self._parent_id, "FINISHED", max((closed_ms(record) for record in records.values()), default=None))
        return touched

    def _has_left(self, owner: str, run: Run) -> bool:
        """Whether a run belongs to a trial that the recipe no longer has."""
        return owner not in self.layout.trials and CELL in run.data.tags and self._is_ours(run)

    def _is_ours(self, run: Run) -> bool:
        return run.data.tags.get(STORE) == self._address("")

    @property
    def _parent_id(self) -> str:
        assert self.parent is not None
        return self.parent

    def _ensure(self, client: MlflowClient, owner: str, *, started_ms: int | None = None) -> Run:
        if self.parent is None:  # the server was away when the sweep began
            self.open(client, is_running=True)
        run = ensure_run(client, self.experiment, **self._described(owner), started_ms=started_ms)
        self._run_ids[owner] = run.info.run_id
        return run

    def _described(self, owner: str) -> RunIdentity:
        return {"name": self.layout.name(owner), "identity": self.layout.identity(owner), "tags": self._child_tags()}

    def _child_tags(self) -> dict[str, str]:
        return self._source_tags() | {PARENT: self._parent_id, STORE: self._address("")}

    def _look_up(self, client: MlflowClient) -> dict[str, Run]:
        """The existing runs, by owner; of several created at once the oldest is kept."""
        found: dict[str, Run] = {}
        for run in sorted(all_runs(client, self.experiment), key=lambda run: (run.info.start_time, run.info.run_id)):
            owner = next(filter(None, map(run.data.tags.get, ("sentdist.trial", "sentdist.key", METHOD))), None)
            if owner in found:
                client.delete_run(run.info.run_id)
            elif owner:
                found[owner] = run
        self._run_ids |= {owner: run.info.run_id for owner, run in found.items()}
        return found

    def _find_inputs(self, client: MlflowClient, owner: str) -> None:
        """Look up the runs that this one links to, where they are unknown."""
        if self.parent is None:
            self.open(client, is_running=True)
        for key in self.layout.made_from(owner):
            if key not in self._run_ids and (run := find_run(client, self.experiment, *self.layout.identity(key))):
                self._run_ids[key] = run.info.run_id

    def _update(self, run: Run, owner: str, run_records: Mapping[str, Record], *, reason: str | None = None) -> RunUpdate:
        """Collect the content of a run from its records, and its links."""
        update = RunUpdate(run)
        update.parameters(self.layout.parameters(owner))
        update.inputs(self.layout.data_sets(owner))
        is_complete = run.data.tags.get(PUBLISHED) == _stamp(run_records)
        by_kind: dict[str, object] = {}  # in one file, since each costs a request
        for key, record in run_records.items():
            if key != owner and self.layout.owner(key) != owner:  # a training with a separate run: its figures, not its curve
                update.figures(final_metrics(record), began_ms(record))
                continue
            update.figures(final_metrics(record), closed_ms(record))
            if not is_complete:
                by_kind[record.kind] = record.model_dump(mode="json")
                if record.kind == "train":
                    update.curve(curve_points(read_curve(self.store, record.place)))
        if by_kind:
            update.files({RECORDS: json.dumps(by_kind, indent=1, ensure_ascii=False)})
        update.tags({PARENT: self._parent_id, NOTE: self._note(owner, run_records, reason or run.data.tags.get(REASON))})
        if owner in self.layout.trials:
            cell = self.layout.trials[owner].cell
            if run.data.tags.get(CELL, cell) != cell:  # the grid has another axis now
                update.set_name(self.layout.name(owner))
            update.tags({COLOR: self._colors[cell], CELL: cell})
        if run_records:
            update.tags(
                {"sentdist.place": self._address(run_records[owner].files_place if owner in run_records else self.sweep.places[owner])}
            )
            update.tags({"sentdist.uses": " ".join(self.layout.made_from(owner))})
        if owner in run_records:
            update.end("FINISHED", max(closed_ms(run_records[owner]), run.info.start_time))
            update.drop(REASON)  # of an earlier attempt
            update.tags({PUBLISHED: _stamp(run_records)})
        return update

    def _note(self, owner: str, run_records: Mapping[str, Record], reason: str | None) -> str:
        layout = self.layout
        sweep = Link(name=self.sweep.name, kind="sweep", url=run_page(self.experiment, self._parent_id))
        made_from = [self._link(key) for key in layout.made_from(owner)]
        trial = layout.trials.get(owner)
        if trial is not None:
            train = run_records.get(trial.train or "")
            return pages.trial_note(
                trial,
                sweep=sweep,
                train=train,
                scores=run_records.get(owner),
                address=None if train is None else self._address(train.files_place),
                shared=made_from,
                reason=None if owner in run_records else reason,
            )
        record = run_records.get(owner)
        return pages.stage_note(
            layout.label(owner),
            layout.kind(owner),
            sweep=sweep,
            record=record,
            address=None if record is None else self._address(record.files_place),
            trials=[self._link(key) for key in layout.used_by(owner)],
            made_from=made_from,
            reason=None if record else reason,
        )

    def _own_records(self, owner: str) -> dict[str, Record]:
        """The records that a run shows, read from the store."""
        found = {key: self.store.at(self.sweep.places[key]) for key in self.layout.shown_keys(owner)}
        return self.layout.shown_records(owner, {key: artifact.record for key, artifact in found.items() if artifact is not None})

    def _link(self, owner: str) -> Link:
        run_id = self._run_ids.get(owner)
        url = run_page(self.experiment, run_id) if run_id else None
        return Link(name=self.layout.link_name(owner), kind=self.layout.kind(owner), url=url)

    def _report_link(self, run: Run) -> list[Link]:
        path = run.data.tags.get(REPORT)
        return [Link(name="Report", kind="report", url=artifact_page(self.experiment, self._parent_id, path))] if path else []

    @cached_property
    def _colors(self) -> dict[str, str]:
        return colors_of(trial.cell for trial in self.sweep.trials)

    @cached_property
    def _views(self) -> tuple[SavedView, ...]:
        scores = [metric_name(score) for score in sweep_summary.sweep_scores(self.sweep)]
        trials = [self.layout.parameters(key) for key in self.layout.trials]
        order, metric = sweep_summary.order_metric(self.sweep), sweep_summary.sweep_metric(self.sweep)
        means, difference = sweep_summary.mean_columns(self.sweep), sweep_summary.difference_metric(self.sweep)
        return views(order=order, metric=metric, scores=scores, trials=trials, means=means, difference=difference)

    @property
    def _view_links(self) -> list[Link]:
        return [Link(name=view.name, kind="view", url=view_page(self.experiment, view.id, view.mode)) for view in self._views]

    def _address(self, place: str) -> str:
        """The address of a place in the store, without credentials and options."""
        return self.store.files.uri(place).rstrip("/")

    def _source_tags(self) -> dict[str, str]:
        return {"mlflow.source.name": f"recipe {self.sweep.name}", "mlflow.source.type": "JOB", "mlflow.user": user_name()}


def _stamp(own: Mapping[str, Record]) -> str:
    return " ".join(f"{key}@{record.created_at}" for key, record in sorted(own.items()))


def _ended(outcome: RunOutcome | None, *, is_complete: bool) -> str:
    """The status of a sweep's run. A run left by a killed driver is stopped a minute later; another driver may have completed it."""
    if outcome == "stopped" and is_complete:
        return "FINISHED"
    return STATUS[outcome] if outcome else "FINISHED" if is_complete else "FAILED"
