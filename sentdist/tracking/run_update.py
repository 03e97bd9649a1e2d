"""Assign a sweep's stages to runs, collect what a run lacks, and send it in few requests."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.plan.stage import Stage, label_of
from sentdist.store.local_storage import scratch_folder
from sentdist.store.record import Record, restored
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.tracking.run_values import DataSet, Point, data_sets, stage_parameters, trial_parameters
from sentdist.tracking.server import despite_collisions
from sentdist.tracking.sweep_summary import distinct_trials

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run


KINDS = {"train": "training"}  # where a run's name does not use the name of the kind


@dataclass(frozen=True, kw_only=True)
class RunLayout:
    """A sweep and its known stages, by key: of an unfinished sweep that is read back, the finished ones."""

    sweep: SweepRecord
    stages: Mapping[str, Stage]

    @classmethod
    def of_records(cls, sweep: SweepRecord, records: Mapping[str, Record]) -> RunLayout:
        """Return the layout of a sweep of which only the records are known."""
        found = {key: restored(key, records) for key in records}
        return cls(sweep=sweep, stages={key: stage for key, stage in found.items() if stage is not None})

    @cached_property
    def trials(self) -> dict[str, TrialRecord]:
        return {trial.key: trial for trial in distinct_trials(self.sweep)}

    @cached_property
    def own(self) -> dict[str, str]:
        """Key of a training that only one trial needs -> key of that trial, whose run shows it (Tune may prune it)."""
        mentions = self.sweep.mentions
        return {trial.train: trial.key for trial in self.trials.values() if trial.train is not None and mentions[trial.train] == 1}

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Keys of the stages with separate runs, inputs before users."""
        return tuple(key for key in self.sweep.places if key not in self.own and key not in self.trials)

    def owner(self, key: str) -> str:
        """Return the key (of a trial or a stage) whose run shows this stage."""
        return self.own.get(key, key)

    def shown_keys(self, owner: str) -> tuple[str, ...]:
        """Return the stages that a run shows: the shared stage, or the scores and training of a trial."""
        trial = self.trials.get(owner)
        return (owner,) if trial is None or trial.train is None else (owner, trial.train)

    def shown_records(self, owner: str, records: Mapping[str, Record]) -> dict[str, Record]:
        """Return the known records that a run shows; empty while only trainings with separate runs are known."""
        found = {key: records[key] for key in self.shown_keys(owner) if key in records}
        return found if owner in found or any(self.owner(key) == owner for key in found) else {}

    def name(self, owner: str) -> str:
        """Return the name of a run; that of a shared stage begins with its kind, to distinguish it from a trial."""
        return self.trials[owner].name if owner in self.trials else f"{KINDS.get(self.kind(owner), self.kind(owner))}: {self.label(owner)}"

    def link_name(self, owner: str) -> str:
        """Return the name without a kind, for lists that show the kind."""
        return self.trials[owner].name if owner in self.trials else self.label(owner)

    def identity(self, owner: str) -> tuple[str, str]:
        """Return the tag by which a restart finds the run again."""
        return ("sentdist.trial" if owner in self.trials else "sentdist.key", owner)

    def kind(self, key: str) -> str:
        return self.sweep.places[key].partition("/")[0]

    def label(self, key: str) -> str:
        return label_of(self.sweep.places[key])

    def parameters(self, owner: str) -> dict[str, str]:
        if owner in self.trials:
            return trial_parameters(self.trials[owner], self.stages.get(owner))
        return stage_parameters(self.stages[owner]) if owner in self.stages else {}

    def data_sets(self, owner: str) -> list[DataSet]:
        """Return the data sets of a run, without those that the sweep's run shows for all trials."""
        found = data_sets(self.stages[owner]) if owner in self.stages else []
        return [one for one in found if one not in self.common_data_sets] if owner in self.trials else found

    @cached_property
    def common_data_sets(self) -> tuple[DataSet, ...]:
        """Data sets that all of several trained trials read; shown once, on the sweep's run. Empty if one trial is unknown."""
        trained = [key for key, trial in self.trials.items() if trial.train is not None]
        if len(trained) < 2 or not set(trained) <= self.stages.keys():
            return ()
        read = [data_sets(self.stages[key]) for key in trained]
        common = set(read[0]).intersection(*read)
        return tuple(one for one in read[0] if one in common)

    def made_from(self, owner: str) -> list[str]:
        """Return the keys of the shared stages that are direct inputs of the run's stages, in build order."""
        users = self.shown_keys(owner)
        inputs = {one.key for user in users if user in self.stages for one in self.stages[user].inputs} | set(users[1:])
        return [key for key in self.shared if key in inputs]

    def used_by(self, stage: str) -> list[str]:
        """Return the keys of the trials that need a stage."""
        return self._users.get(stage, [])

    @cached_property
    def _users(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for trial in self.trials.values():
            for stage in trial.stages:
                found.setdefault(stage, []).append(trial.key)
        return found


PUBLISHED = "sentdist.published"  # the tag that is set last: the records that the run shows completely
REASON = "sentdist.reason"  # why it failed

MAX_PARAMETERS, MAX_METRICS = 100, 800  # per request; MLflow accepts 100 parameters, 100 tags and 1000 items in all
PARAMETER_LETTERS, TAG_LETTERS = 6000, 8000


class RunUpdate:
    """The difference between what a run should show and what it showed when it was read."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._parameters: dict[str, str] = {}
        self._metrics: list[Point] = []
        self._curve: list[Point] = []
        self._tags: dict[str, str] = {}
        self._dropped: list[str] = []
        self._inputs: list[DataSet] = []
        self._files: dict[str, str] = {}
        self._name: str | None = None
        self._status: str | None = None
        self._ended_ms: int | None = None

    def parameters(self, values: Mapping[str, str]) -> None:
        """Add parameters; existing ones cannot be changed and stay."""
        self._parameters |= {name: value[:PARAMETER_LETTERS] for name, value in values.items() if name not in self.run.data.params}

    def tags(self, values: Mapping[str, str]) -> None:
        """Add tags; they are sent last, so a tag can mark a run as complete."""
        cut = {name: value[:TAG_LETTERS] for name, value in values.items()}
        self._tags |= {name: value for name, value in cut.items() if self.run.data.tags.get(name) != value}

    def set_name(self, name: str) -> None:
        """Rename the run."""
        self._name = name

    def drop(self, tag: str) -> None:
        """Remove a tag, if present."""
        if tag in self.run.data.tags:
            self._dropped.append(tag)

    def figures(self, values: Mapping[str, float], at_ms: int, *, step: int = 0) -> None:
        """Add metrics without a curve; `step` distinguishes the values of one that may change."""
        self._metrics += [Point(name, value, at_ms, step) for name, value in values.items() if self.run.data.metrics.get(name) != value]

    def curve(self, points: Iterable[Point]) -> None:
        """Add points of curves; only those that the run lacks are sent, since a training may have sent some."""
        self._curve += points

    def inputs(self, data_sets: Iterable[DataSet]) -> None:
        """Add data sets (name, digest, context); MLflow keeps one context per data set."""
        there = {(item.dataset.name, item.dataset.digest) for item in (self.run.inputs.dataset_inputs if self.run.inputs else ())}
        once = {(name, _digest(digest)): (name, digest, context) for name, digest, context in reversed(list(data_sets))}
        self._inputs += [given for identity, given in reversed(once.items()) if identity not in there]

    def files(self, texts: Mapping[str, str]) -> None:
        """Add artifacts by name; existing ones are overwritten."""
        self._files |= texts

    def end(self, status: str, ended_ms: int | None = None) -> None:
        """Set the status; a run that already has it keeps its end time."""
        if self.run.info.status != status:
            self._status, self._ended_ms = status, ended_ms

    def send(self, client: MlflowClient) -> None:
        """Send at most one request for inputs, name, status, each file, each removed tag and each batch of metrics."""
        run_id = self.run.info.run_id
        if self._inputs:
            given = [_data_set(*item) for item in self._inputs]
            despite_collisions(lambda: client.log_inputs(run_id, datasets=given), table="datasets", at_most=len(given))
        if self._files:
            _send_files(client, self.run, self._files)
        if self._name is not None:
            client.update_run(run_id, name=self._name)
        if self._status is not None:
            client.set_terminated(run_id, self._status, self._ended_ms)
        for tag in self._dropped:
            client.delete_tag(run_id, tag)
        for batch in batches(self._parameters, [*self._metrics, *self._missing_points(client)], self._tags):
            batch.send(client, run_id)

    def _missing_points(self, client: MlflowClient) -> Sequence[Point]:
        """The points that the run lacks. Only curves with a last value are requested: others have no point yet."""
        names = {point.name for point in self._curve} & set(self.run.data.metrics)
        there = {(name, metric.step) for name in names for metric in client.get_metric_history(self.run.info.run_id, name)}
        return [point for point in self._curve if (point.name, point.step) not in there]


@dataclass(frozen=True, kw_only=True)
class LoggedBatch:
    """Content of one request."""

    parameters: tuple[tuple[str, str], ...]
    metrics: tuple[Point, ...]
    tags: tuple[tuple[str, str], ...]

    def send(self, client: MlflowClient, run_id: str) -> None:
        from mlflow.entities import Metric, Param, RunTag

        client.log_batch(
            run_id,
            metrics=[Metric(name, value, at_ms, step) for name, value, at_ms, step in self.metrics],
            params=[Param(name, value) for name, value in self.parameters],
            tags=[RunTag(name, value) for name, value in self.tags],
        )


def batches(parameters: Mapping[str, str], metrics: Sequence[Point], tags: Mapping[str, str]) -> list[LoggedBatch]:
    """Split into requests that a server accepts; tags (at most 100) are in the last one. Without content there is none."""
    found = []
    names = list(parameters.items())
    for number in range(max(-(-len(names) // MAX_PARAMETERS), -(-len(metrics) // MAX_METRICS), bool(tags))):
        found.append(
            LoggedBatch(
                parameters=tuple(names[number * MAX_PARAMETERS : (number + 1) * MAX_PARAMETERS]),
                metrics=tuple(metrics[number * MAX_METRICS : (number + 1) * MAX_METRICS]),
                tags=(),
            )
        )
    if tags:
        found[-1] = LoggedBatch(parameters=found[-1].parameters, metrics=found[-1].metrics, tags=tuple(tags.items()))
    return found


def add_metrics(client: MlflowClient, run_id: str, points: Sequence[Point]) -> None:
    """Log points in batches."""
    for batch in batches({}, points, {}):
        batch.send(client, run_id)


def add_tags(client: MlflowClient, run: Run, values: Mapping[str, str]) -> None:
    """Set the tags whose value differs."""
    update = RunUpdate(run)
    update.tags(values)
    update.send(client)


def _data_set(name: str, digest: str, context: str) -> DatasetInput:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = f'{{"name": "{name}", "revision": "{digest}"}}'
    return DatasetInput(Dataset(name, _digest(digest), "sentdist", source), [InputTag("mlflow.data.context", context)])


def _digest(text: str) -> str:
    return text[-36:]  # MLflow takes at most 36 characters


def _send_files(client: MlflowClient, run: Run, texts: Mapping[str, str]) -> None:
    """Like `client.log_text`, which would request the run before each file to learn the place of its artifacts."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=client.tracking_uri)
    with scratch_folder(Path(tempfile.gettempdir()), "run") as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
            repository.log_artifact(str(folder / name))


def closed_ms(record: Record) -> int:
    """Return when a stage ended, in ms since the epoch."""
    return int(datetime.fromisoformat(record.created_at).timestamp() * 1000)


def began_ms(record: Record) -> int:
    """Return when a stage began, in ms since the epoch."""
    return closed_ms(record) - int(record.seconds * 1000)


def first_ms(records: Mapping[str, Record]) -> int | None:
    """Return when the first of the stages began; None without stages."""
    return min(map(began_ms, records.values()), default=None)


def now_ms() -> int:
    """Return the current time in ms, for figures that may change: of equal steps MLflow shows the latest value."""
    return int(1000 * time.time())
