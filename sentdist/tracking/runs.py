"""Create and update the runs of a sweep or search: one for each trial, one with means for each method, and their parent."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from sentdist.errors import SentdistError, counted
from sentdist.recipe.dotted import short_names
from sentdist.recipe.search import Search
from sentdist.recipe.stage import Stage
from sentdist.recipe.wording import value_text
from sentdist.store.record import Record, restored
from sentdist.store.searches import SearchRecord, SearchTrial, read_curve, read_pruned_curve
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, TrialRecord, cells_by_dev, method_title
from sentdist.text import markdown_link, markdown_text
from sentdist.tracking import values
from sentdist.tracking.values import DEV_SCORE, Point, began_ms, closed_ms, curve_of, final_metrics, shown, trial_parameters
from sentdist.tracking.views import CELL, METHOD, SEARCH, run_page, search_views, sweep_views, view_pages

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

RunOutcome = Literal["failed", "stopped"]  # stopped: pruned by a scheduler or cancelled by a user
STATUS: dict[RunOutcome, str] = {"failed": "FAILED", "stopped": "KILLED"}
Item = TypeVar("Item")

PARENT, NOTE = "mlflow.parentRunId", "mlflow.note.content"
TRIAL = "sentdist.trial"  # key of its scores
TRAIN = "sentdist.train"  # key of its training, by which a trial and that of a search find the same run; that of the scores without one
STAGES = "sentdist.stages"  # lineage: places of all stages of a trial, which end with their keys, inputs first
STORE = "sentdist.store"  # of the run's driver: a driver with another store may run a sweep of the same name
PUBLISHED = "sentdist.published"  # the records that a run shows completely; set last
REASON = "sentdist.reason"  # why it failed
STATE = "sentdist.state"  # pruning is a normal end: this tag, a column of the view, shows which runs were pruned
SHOWN = "sentdist.search_shown"  # how much of a trial its run shows
SEARCH_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
MODEL, REPORT = "sentdist.model", "sentdist.report"  # the registered encoder, and the report's page among the artifacts


class SweepRuns:
    """Creates, finds and updates the runs of a sweep; repeating a call changes nothing. Methods may raise any error of the client."""

    def __init__(self, sweep: SweepRecord, stages: Mapping[str, Stage], store: ArtifactStore) -> None:
        self.sweep = sweep
        self.store = store
        self.trials = values.distinct_trials(sweep)
        self.parameters = {key: trial_parameters(trial, stages.get(key)) for key, trial in self.trials.items()}
        self.views = sweep_views(sweep, list(self.parameters.values()))
        self.experiment = ""
        self.parent = ""

    @classmethod
    def of_records(cls, sweep: SweepRecord, store: ArtifactStore, records: Mapping[str, Record]) -> SweepRuns:
        """Return the runs of a sweep of which only the records are known."""
        found = {key: restored(key, records) for key in records}
        return cls(sweep, {key: stage for key, stage in found.items() if stage is not None}, store)

    def open(self, client: MlflowClient, *, is_running: bool, started_ms: int | None = None) -> Run:
        """Find or create the experiment with its views, and the sweep's run with the recipe, begun at `started_ms` or now."""
        metric = values.order_metric(self.sweep)
        tags = {"mlflow.experiment.primaryMetric.name": metric, "mlflow.experiment.primaryMetric.greaterIsBetter": "true"}
        note = {NOTE: markdown_text(self.sweep.about.strip() or "No `about` in the recipe.")}
        views = dict(view.tag(place) for place, view in enumerate(self.views))
        self.experiment = ensure_experiment(client, self.sweep.name, note | tags | views)
        run = ensure_parent(client, self.experiment, self.sweep.name, started_ms)
        self.parent = run.info.run_id
        if is_running and run.info.status != "RUNNING":
            client.update_run(self.parent, status="RUNNING")
        client.log_dict(self.parent, json.loads(json.dumps(self.sweep.recipe)), "recipe.yaml")
        if is_running and NOTE not in run.data.tags:
            self.summarize(client, {})
        return run

    def begin(self, client: MlflowClient, key: str) -> tuple[str, str] | None:
        """Return experiment and run of a trial or its training, which is about to be built; None for another stage."""
        trial = next(iter(self._trials_of(key)), None)
        if trial is None:
            return None
        run = self.ensure(client, trial)
        if PUBLISHED not in run.data.tags:
            self._write(client, run, trial, {}, "RUNNING")
        return self.experiment, str(run.info.run_id)

    def finish(self, client: MlflowClient, record: Record) -> None:
        """Complete the runs that show a finished stage, as far as their records go."""
        for trial in self._trials_of(record.key):
            found = {key: self.store.at(self.sweep.places[key]) for key in shown_stages(trial)}
            records = {key: artifact.record for key, artifact in found.items() if artifact is not None} | {record.key: record}
            self._write(client, self.ensure(client, trial, started_ms=min(map(began_ms, records.values()))), trial, records)

    def fail(self, client: MlflowClient, key: str, reason: str, outcome: RunOutcome) -> None:
        """End the runs of a trial or its training."""
        for trial in self._trials_of(key):
            self._write(client, self.ensure(client, trial), trial, {}, STATUS[outcome], reason=reason)

    def close(self, client: MlflowClient, outcome: RunOutcome | None) -> None:
        """Update all runs and end them: runs of this store that are still running were left by a process that died."""
        self.open(client, is_running=True)
        records = self.sweep.records(self.store)
        self.refresh(client, records)
        for run in [*all_runs(client, self.experiment, f"tags.`{STORE}` = '{self._address}' and attributes.status = 'RUNNING'")]:
            client.set_terminated(run.info.run_id, "KILLED")
        is_complete = self.trials.keys() <= records.keys()  # also if another driver completed what a killed one left
        ended = "FINISHED" if is_complete and outcome != "failed" else STATUS[outcome or "failed"]
        client.set_terminated(self.parent, ended)

    def refresh(self, client: MlflowClient, records: Mapping[str, Record]) -> int:
        """Write to the runs what they lack of the records; return how many trials have a record."""
        runs, further = self._look_up(client), values.differences(self.sweep, records)
        own = {key: {one: records[one] for one in shown_stages(trial) if one in records} for key, trial in self.trials.items()}

        def write(trial: TrialRecord) -> None:
            found, run = own[trial.key], runs.get(trial.key)
            if run is None:
                run = self._create(client, trial, started_ms=min(map(began_ms, found.values())))
            status = "KILLED" if trial.key not in runs and trial.key not in found else None  # a running one stays so
            self._write(client, run, trial, found, status, further.get(trial.key, {}))

        each(write, [trial for trial in self.trials.values() if own[trial.key] or trial.key in runs])
        gone = [run for key, run in runs.items() if key not in self.trials and CELL in run.data.tags]
        each(lambda run: client.delete_tag(run.info.run_id, CELL), gone)
        self._write_means(client, records)
        self.summarize(client, records)
        return sum(map(bool, own.values()))

    def summarize(self, client: MlflowClient, records: Mapping[str, Record]) -> None:
        """Write the result to the sweep's run, as note and metrics."""
        run, sweep, cells = client.get_run(self.parent), self.sweep, cells_by_dev(self.sweep, records)
        figures, metric, pages = values.choice_metrics(sweep, records), values.sweep_metric(sweep), view_pages(self.experiment, self.views)
        if report := run.data.tags.get(REPORT):
            pages["Report"] = run_page(self.experiment, self.parent, report)
        best = f" Best on dev: {markdown_text(cells[0].line)}." if cells else ""
        test = f" On the test sets it scores {markdown_text(metric)} {figures[metric]:.2f}." if metric in figures else ""
        needed, built = sum(sweep.mentions.values()), len(sweep.places)
        lines = (
            f"**{sum(key in records for key in self.trials)} of {counted(len(self.trials), 'trial')} with scores.**{best}{test}",
            " · ".join(markdown_link(name, page) for name, page in pages.items()),
            markdown_text(sweep.about.strip()),
            f"{counted(built, 'stage')} instead of the {needed} that the trials need." if needed > built else "",
            f"Registered: {run.data.tags[MODEL]}" if MODEL in run.data.tags else "",
            f"Artifacts: `{self._address}`",
        )
        update(client, run, figures=figures, tags={NOTE: "\n\n".join(filter(None, lines))})

    def log_report(self, client: MlflowClient, folder: Path) -> None:
        """Log the files of a report below `report/` on the sweep's run."""
        records = self.sweep.records(self.store)
        self.rebuild(client, records, {})
        client.log_artifacts(self.parent, str(folder), "report")
        if (folder / "report.html").exists():
            client.set_tag(self.parent, REPORT, "report/report.html")
        self.summarize(client, records)

    def rebuild(self, client: MlflowClient, records: Mapping[str, Record], failures: Mapping[str, str]) -> int:
        """Refresh a sweep that another process may run: running runs stay so. failures: why trials failed just now."""
        parent = self.open(client, is_running=False, started_ms=_first_ms(records))
        touched = self.refresh(client, records)
        for key, reason in failures.items():
            self.fail(client, key, reason, "failed")
        if self.trials.keys() <= records.keys():
            update(client, parent, status="FINISHED", ended_ms=max(map(closed_ms, records.values()), default=None))
        elif failures or NOTE not in parent.data.tags:
            client.set_terminated(self.parent, "FAILED" if failures else "KILLED")
        return touched

    def _find(self, client: MlflowClient, trial: TrialRecord) -> Run | None:
        """The run of a trial, or that of a search's trial with the same training, which becomes its run."""
        found = all_runs(client, self.experiment, f"tags.`{TRAIN}` = '{trial.train or trial.key}'")
        mine = [run for run in found if run.data.tags.get(TRIAL, trial.key) == trial.key]
        return min(mine, key=lambda run: (TRIAL not in run.data.tags, run.info.start_time), default=None)

    def ensure(self, client: MlflowClient, trial: TrialRecord, *, started_ms: int | None = None) -> Run:
        """Return the run of a trial, created if missing."""
        if not self.parent:  # the server was away when the sweep began
            self.open(client, is_running=True)
        return self._find(client, trial) or self._create(client, trial, started_ms=started_ms)

    def _create(self, client: MlflowClient, trial: TrialRecord, *, started_ms: int | None) -> Run:
        tags = self._child_tags | {TRIAL: trial.key, TRAIN: trial.train or trial.key}
        return client.create_run(self.experiment, run_name=trial.name, start_time=started_ms, tags=tags)

    @property
    def _child_tags(self) -> dict[str, str]:
        return source_tags(self.sweep.name) | {PARENT: self.parent, STORE: self._address}

    @property
    def _address(self) -> str:
        """The address of the store, without credentials and options."""
        return self.store.files.uri("").rstrip("/")

    def _trials_of(self, key: str) -> list[TrialRecord]:
        return [trial for trial in self.trials.values() if key in shown_stages(trial)]

    def _look_up(self, client: MlflowClient) -> dict[str, Run]:
        """The existing runs by trial; of two that drivers created at once the older one is kept."""
        found: dict[str, Run] = {}
        by_train = {trial.train: trial.key for trial in self.trials.values() if trial.train is not None}
        runs = list(all_runs(client, self.experiment))
        for run in sorted(runs, key=lambda run: (TRIAL not in run.data.tags, run.info.start_time, run.info.run_id)):
            key = run.data.tags.get(TRIAL) or by_train.get(run.data.tags.get(TRAIN, ""))
            if key in found and TRIAL in run.data.tags:
                client.delete_run(run.info.run_id)
            elif key is not None:
                found.setdefault(key, run)
        return {key: run for key, run in found.items() if key in self.trials or run.data.tags.get(STORE) == self._address}

    def _write(
        self, client: MlflowClient, run: Run, trial: TrialRecord, records: Mapping[str, Record], status: str | None = None,
        figures: Mapping[str, float] = {}, reason: str = "",
    ) -> None:  # fmt: skip
        """Write the content of a trial's run from its records."""
        stages = " ".join(self.sweep.places[key] for key in trial.stages)
        tags = {TRIAL: trial.key, CELL: trial.cell, STORE: self._address, STAGES: stages}
        tags |= {REASON: reason} if reason else {}
        stamp, curve, ended_ms = " ".join(f"{key}@{record.created_at}" for key, record in records.items()), list[Point](), None
        if records and run.data.tags.get(PUBLISHED) != stamp:
            content = {record.kind: record.model_dump(mode="json") for record in records.values()}
            client.log_dict(run.info.run_id, content, "records.json")
            curve = [point for one in records.values() if one.kind == "train" for point in curve_of(read_curve(self.store, one.place))]
        if run.data.tags.get(CELL) != trial.cell and run.info.run_name != trial.name:  # the grid has another axis now, or a search's trial
            client.update_run(run.info.run_id, name=trial.name)
        if (train := records.get(trial.train or "")) is not None:
            tags["sentdist.place"] = self.store.files.uri(train.files_place)
        if trial.key in records:
            status, ended_ms = "FINISHED", max(closed_ms(records[trial.key]), run.info.start_time)
            tags[PUBLISHED] = stamp
            if REASON in run.data.tags:  # of an earlier attempt
                client.delete_tag(run.info.run_id, REASON)
        found = {name: value for record in records.values() for name, value in final_metrics(record).items()} | dict(figures)
        update(client, run, parameters=self.parameters[trial.key], figures=found, curve=curve, status=status, ended_ms=ended_ms, tags=tags)

    def _write_means(self, client: MlflowClient, records: Mapping[str, Record]) -> None:
        means = values.means(self.sweep, records) if values.mean_columns(self.sweep) else {}
        runs = {run.data.tags[METHOD]: run for run in all_runs(client, self.experiment, f"tags.`{METHOD}` != ''")}
        for label, figures in means.items():
            run = runs.get(label) or client.create_run(self.experiment, run_name=label, tags=self._child_tags | {METHOD: label})
            update(client, run, figures=figures, status="FINISHED")
        for label, run in runs.items():
            if label not in means and run.data.tags.get(STORE) == self._address:
                client.delete_run(run.info.run_id)


class SearchRuns:
    """Brings the record of a search to a server; repeating it changes nothing. Methods may raise any error of the client."""

    def __init__(self, record: SearchRecord, store: ArtifactStore) -> None:
        self.record = record
        self.store = store  # with the curves of finished and pruned trainings
        self.space = Search.model_validate(record.recipe["search"]).space
        self.short = short_names(record.methods.values())
        fields = {method_title(record.recipe, name): [*map(self._axis, paths)] for name, paths in record.methods.items()}
        self.views = search_views(record.identity, fields)

    def publish(self, client: MlflowClient, *, running: str | None = None) -> str:
        """Write all trials; return the id of the experiment.

        Args:
            running: Status of trials that have not ended; None if another process may run the search: then that of a run stays.
        """
        record = self.record
        experiment = ensure_experiment(client, record.name, dict(view.tag(place + 100) for place, view in enumerate(self.views)))
        parent = ensure_parent(client, experiment, record.name, int(1000 * record.began))
        mine = all_runs(client, experiment, f"tags.`{SEARCH}` = '{record.identity}'")
        runs = {run.data.tags[TRAIN]: run for run in mine if TRAIN in run.data.tags}
        left = "KILLED" if record.reason is not None else running  # no trial runs after the end of a search
        each(lambda trial: self._write(client, experiment, parent, runs.get(trial.train), trial, left), record.trials)
        if record.reason is None or NOTE not in parent.data.tags:  # afterwards the run is the sweep's of its finalists
            states = [trial.state for trial in record.trials]
            counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
            note = f"Search: {counts}.\n\n{markdown_text(str(record.recipe.get('about') or '').strip())}"
            status = running if running or NOTE in parent.data.tags else "KILLED" if record.reason is None else "FINISHED"
            update(client, parent, tags={NOTE: note}, status=status)
        return experiment

    def _write(self, client: MlflowClient, experiment: str, parent: Run, run: Run | None, trial: SearchTrial, running: str | None) -> None:
        if run is None:
            running = running or "KILLED"
            name = f"{method_title(self.record.recipe, trial.method)} · trial {trial.number}"
            tags = source_tags(self.record.name) | {PARENT: parent.info.run_id, SEARCH: self.record.identity, TRAIN: trial.train}
            run = client.create_run(experiment, run_name=name, start_time=int(1000 * trial.began), tags=tags)
        status, ended_ms = SEARCH_STATUS.get(trial.state, running), None if trial.ended is None else int(1000 * trial.ended)
        stamp = f"{trial.state} {len(trial.rungs)}"
        curve, figures = [] if run.data.tags.get(SHOWN) == stamp else self._curve(trial), dict[str, float]()
        if trial.rungs:
            last = trial.rungs[-1]
            figures = {DEV_SCORE: shown(last.dev), "share_trained": shown(last.share), "seconds": shown(trial.seconds)}
            figures["sentences"] = float(last.sentences)
        given = {STATE: trial.state, SHOWN: stamp} | ({REASON: trial.error} if trial.error else {})
        update(client, run, parameters=self._parameters(trial), figures=figures, curve=curve, tags=given, status=status, ended_ms=ended_ms)

    def _curve(self, trial: SearchTrial) -> list[Point]:
        """The curve of a finished or pruned training."""
        with suppress(SentdistError):  # a store that cannot be read, or a damaged file
            if trial.state == "pruned":
                return curve_of(read_pruned_curve(self.store, trial.train))
            if trial.rungs and (place := trial.rungs[-1].place) is not None:
                return curve_of(read_curve(self.store, place))
        return []

    def _parameters(self, trial: SearchTrial) -> dict[str, str]:
        """Values by short names; fields on a logarithmic scale also as their logarithm, since MLflow's axes are linear."""
        found = {"method": trial.method, "trial": str(trial.number)}
        found |= {self.short[path]: value_text(value) for path, value in trial.suggestion.items()}
        return found | {
            self._axis(path): f"{math.log10(value):.3f}"
            for path, value in trial.suggestion.items()
            if self.space[path].log is not None and isinstance(value, int | float)
        }

    def _axis(self, path: str) -> str:
        return f"log10 {self.short[path]}" if self.space[path].log is not None else self.short[path]


def shown_stages(trial: TrialRecord) -> tuple[str, ...]:
    """Return the keys of the stages that a trial's run shows: its training and its scores."""
    return (trial.key,) if trial.train is None else (trial.train, trial.key)


def ensure_experiment(client: MlflowClient, name: str, tags: Mapping[str, str]) -> str:
    """Return the id of the experiment with this name and these tags, created or restored if needed."""
    found = client.get_experiment_by_name(name)
    if found is None:
        found = client.get_experiment(client.create_experiment(name))
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    kind = {"mlflow.experimentKind": "custom_model_development"}  # the default is pages for language-model applications
    for tag, value in (kind | dict(tags)).items():
        if found.tags.get(tag) != value:
            client.set_experiment_tag(found.experiment_id, tag, value)
    return str(found.experiment_id)


def ensure_parent(client: MlflowClient, experiment: str, name: str, started_ms: int | None) -> Run:
    """Return the run of a sweep or search, created if missing; its trials are below it."""
    found = next(all_runs(client, experiment, "tags.`sentdist.sweep` != ''"), None)
    tags = source_tags(name) | {"sentdist.sweep": name}
    return found or client.create_run(experiment, run_name=f"sweep {name}", start_time=started_ms, tags=tags)


def all_runs(client: MlflowClient, experiment: str, filter_string: str = "") -> Iterator[Run]:
    """Yield every run that passes the filter, oldest first."""
    token = None
    while True:
        page = client.search_runs([experiment], filter_string, max_results=1000, order_by=["attributes.start_time ASC"], page_token=token)
        yield from page
        if not (token := page.token):
            return


def source_tags(name: str) -> dict[str, str]:
    """Return the tags that say which recipe a run is of, and whose."""
    from mlflow.tracking.context.default_context import DefaultRunContext

    return DefaultRunContext().tags() | {"mlflow.source.name": f"recipe {name}", "mlflow.source.type": "JOB"}


def update(
    client: MlflowClient, run: Run, *, parameters: Mapping[str, str] = {}, figures: Mapping[str, float] = {}, curve: Sequence[Point] = (),
    tags: Mapping[str, str] = {}, status: str | None = None, ended_ms: int | None = None,
) -> None:  # fmt: skip
    """Send what a run lacks. MLflow refuses to change a parameter; of a metric without a curve it shows the latest value."""
    from mlflow.entities import Metric, Param, RunTag

    run_id, there, now = run.info.run_id, run.data, int(1000 * time.time())
    if status == "RUNNING" != run.info.status:
        client.update_run(run_id, status=status)
    elif status is not None and run.info.status != status:
        client.set_terminated(run_id, status, ended_ms)
    curves = {point.name for point in curve} & there.metrics.keys()
    known = {name: {one.step for one in client.get_metric_history(run_id, name)} for name in curves}
    metrics = [Metric(name, value, now, 0) for name, value in figures.items() if there.metrics.get(name) != value]
    metrics += [Metric(*point) for point in curve if point.step not in known.get(point.name, ())]
    params = [Param(name, value[:6000]) for name, value in parameters.items() if name not in there.params]
    texts = [RunTag(name, value[:8000]) for name, value in tags.items() if there.tags.get(name) != value[:8000]]
    while metrics or params or texts:  # a request takes 1000 entries, of them 100 parameters and tags; the tags come last
        is_last = not (metrics[800:] or params[100:])
        client.log_batch(run_id, metrics=metrics[:800], params=params[:100], tags=texts if is_last else ())
        metrics, params, texts = metrics[800:], params[100:], [] if is_last else texts


def each(action: Callable[[Item], object], items: Sequence[Item]) -> None:
    """Run an action on every item over four connections, which takes two thirds of the time of one. The first error is raised."""
    with ThreadPoolExecutor(4, thread_name_prefix="sentdist-mlflow") as pool:
        list(pool.map(action, items))


def _first_ms(records: Mapping[str, Record]) -> int | None:
    return min(map(began_ms, records.values()), default=None)
