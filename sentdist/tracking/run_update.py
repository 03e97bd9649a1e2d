"""How one run is brought up to date: what it lacks is gathered first, then sent in as few requests as the server takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.store.record import Record
from sentdist.store.scratch import scratch_folder
from sentdist.tracking.parameters import DataSet
from sentdist.tracking.server_runs import despite_collisions
from sentdist.tracking.shown_metrics import Point

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run

PUBLISHED = "sentdist.published"  # the tag that is set last: of which state of things the run is complete
REASON = "sentdist.reason"  # why it failed

MAX_PARAMETERS, MAX_METRICS = 100, 800  # a request; MLflow takes 100 parameters, 100 tags and 1000 of all together
PARAMETER_LETTERS, TAG_LETTERS = 6000, 8000


class RunUpdate:
    """What a run is to show, against what stood on it when it was read; nothing that is there already is sent again."""

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
        """A parameter cannot be changed, so one that is there is left as it is."""
        self._parameters |= {name: value[:PARAMETER_LETTERS] for name, value in values.items() if name not in self.run.data.params}

    def tags(self, values: Mapping[str, str]) -> None:
        """They are sent after all else, so a tag can say that a run is complete."""
        cut = {name: value[:TAG_LETTERS] for name, value in values.items()}
        self._tags |= {name: value for name, value in cut.items() if self.run.data.tags.get(name) != value}

    def set_name(self, name: str) -> None:
        """Give the run another name."""
        self._name = name

    def drop(self, tag: str) -> None:
        """Take a tag off the run, if it is there."""
        if tag in self.run.data.tags:
            self._dropped.append(tag)

    def figures(self, values: Mapping[str, float], at_ms: int, *, step: int = 0) -> None:
        """Metrics that are no curve; `step` distinguishes the values of one that may change."""
        self._metrics += [Point(name, value, at_ms, step) for name, value in values.items() if self.run.data.metrics.get(name) != value]

    def curve(self, points: Iterable[Point]) -> None:
        """Add points of curves. Only those that the run lacks are sent: a training may have sent some of them itself."""
        self._curve += points

    def inputs(self, data_sets: Iterable[DataSet]) -> None:
        """Data sets (name, digest, context). MLflow keeps one context for a data set that is given twice."""
        there = {(item.dataset.name, item.dataset.digest) for item in (self.run.inputs.dataset_inputs if self.run.inputs else ())}
        once = {(name, _digest(digest)): (name, digest, context) for name, digest, context in reversed(list(data_sets))}
        self._inputs += [given for identity, given in reversed(once.items()) if identity not in there]

    def files(self, texts: Mapping[str, str]) -> None:
        """Artifacts by their name; they are written over what is there."""
        self._files |= texts

    def end(self, status: str, ended_ms: int | None = None) -> None:
        """A run that has this status already keeps its end."""
        if self.run.info.status != status:
            self._status, self._ended_ms = status, ended_ms

    def send(self, client: MlflowClient) -> None:
        """At most one request for each of: inputs, name, status, file, a tag that goes and some hundred metrics."""
        run_id = self.run.info.run_id
        if self._inputs:
            _send_inputs(client, run_id, self._inputs)
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
        """The points that the run lacks. Only curves of which it shows a last value are asked for: others have no point yet."""
        names = {point.name for point in self._curve} & set(self.run.data.metrics)
        there = {(name, metric.step) for name in names for metric in client.get_metric_history(self.run.info.run_id, name)}
        return [point for point in self._curve if (point.name, point.step) not in there]


@dataclass(frozen=True, kw_only=True)
class LoggedBatch:
    """The content of one request."""

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
    """Cut into requests of a size that a server takes; the tags (at most 100) stand in the last. Nothing to send is no request."""
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
    """Log points, some hundred a request."""
    for batch in batches({}, points, {}):
        batch.send(client, run_id)


def add_tags(client: MlflowClient, run: Run, values: Mapping[str, str]) -> None:
    """Set the tags whose value differs."""
    update = RunUpdate(run)
    update.tags(values)
    update.send(client)


def _send_inputs(client: MlflowClient, run_id: str, data_sets: Sequence[DataSet]) -> None:
    given = [_data_set(*item) for item in data_sets]
    despite_collisions(lambda: client.log_inputs(run_id, datasets=given), table="datasets", at_most=len(given))


def _data_set(name: str, digest: str, context: str) -> DatasetInput:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = f'{{"name": "{name}", "revision": "{digest}"}}'
    return DatasetInput(Dataset(name, _digest(digest), "sentdist", source), [InputTag("mlflow.data.context", context)])


def _digest(text: str) -> str:
    return text[-36:]  # as many letters as MLflow takes


def _send_files(client: MlflowClient, run: Run, texts: Mapping[str, str]) -> None:
    """As `client.log_text` does, which would ask for the run before each file to learn where its artifacts lie."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=client.tracking_uri)
    with scratch_folder(Path(tempfile.gettempdir()), "run") as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
            repository.log_artifact(str(folder / name))


def closed_ms(record: Record) -> int:
    """When a stage ended, as MLflow counts time."""
    return int(datetime.fromisoformat(record.created_at).timestamp() * 1000)


def began_ms(record: Record) -> int:
    """When it was begun."""
    return closed_ms(record) - int(record.seconds * 1000)


def first_ms(records: Mapping[str, Record]) -> int | None:
    """When the first of the stages was begun."""
    return min(map(began_ms, records.values()), default=None)


def now_ms() -> int:
    """When a figure is written that others may change: of equal steps MLflow shows the latest value."""
    return int(1000 * time.time())
