"""Experiments and runs of a server, found or made: several processes may ask for the same one at once."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

from sentdist.tracking.shown_metrics import metric_name, shown

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

Answer = TypeVar("Answer")
Item = TypeVar("Item")

PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
CONNECTIONS = 4  # for many runs at once


def ensure_experiment(client: MlflowClient, name: str, tags: Mapping[str, str]) -> str:
    """Id of the experiment of that name, made or brought back from the bin if need be, with these tags."""
    from mlflow.exceptions import MlflowException

    found: Experiment | None = client.get_experiment_by_name(name)
    if found is None:
        try:
            client.create_experiment(name, tags=dict(tags))
        except MlflowException:  # another driver was faster
            if client.get_experiment_by_name(name) is None:
                raise
        found = client.get_experiment_by_name(name)
    assert found is not None
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    for tag, value in tags.items():
        if found.tags.get(tag) != value:
            client.set_experiment_tag(found.experiment_id, tag, value)
    return str(found.experiment_id)


def find_run(client: MlflowClient, experiment_id: str, tag: str, value: str) -> Run | None:
    """The oldest run with that tag."""
    found = client.search_runs(
        [experiment_id], filter_string=f"tags.`{tag}` = '{value}'", order_by=["attributes.start_time ASC"], max_results=1
    )
    return found[0] if found else None


class RunIdentity(TypedDict):
    """What a run is made with: its name, the tag by which it is found again, and further tags."""

    name: str
    identity: tuple[str, str]
    tags: Mapping[str, str]


def create_run(client: MlflowClient, experiment_id: str, *, started_ms: int | None = None, **given: Unpack[RunIdentity]) -> Run:
    """A new run; None: it starts now."""
    tag, value = given["identity"]
    return client.create_run(experiment_id, run_name=given["name"], start_time=started_ms, tags={**given["tags"], tag: value})


def ensure_run(client: MlflowClient, experiment_id: str, *, started_ms: int | None = None, **given: Unpack[RunIdentity]) -> Run:
    """The run with the identity tag, made if there is none; of two that were made at once, the older one stays."""
    found = find_run(client, experiment_id, *given["identity"])
    if found is not None:
        return found
    made = create_run(client, experiment_id, started_ms=started_ms, **given)
    oldest = find_run(client, experiment_id, *given["identity"])
    if oldest is not None and oldest.info.run_id != made.info.run_id:
        client.delete_run(made.info.run_id)
        return oldest
    return made


def all_runs(client: MlflowClient, experiment_id: str, filter_string: str = "") -> Iterator[Run]:
    """Every run that passes the filter, page by page."""
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], filter_string=filter_string, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def add_model_metrics(client: MlflowClient, run_id: str, model_id: str, values: Mapping[str, float]) -> None:
    """Show scores of a run on the model that came out of it, too."""
    from mlflow.entities import Metric

    now_ms = int(time.time() * 1000)
    client.log_batch(
        run_id, metrics=[Metric(metric_name(name), shown(value), now_ms, 0, model_id=model_id) for name, value in values.items()]
    )


def despite_collisions(action: Callable[[], Answer], *, table: str, at_most: int = 8) -> Answer:
    """What an action returns, tried again where another request has made the same row of a table meanwhile.

    The server looks whether a row is there, then makes it: of two requests at once the second breaks a constraint. Each such failure
    means that another request has got on, so there are no more of them than requests at once (`at_most`).
    """
    from mlflow.exceptions import MlflowException

    for _ in range(at_most):
        try:
            return action()
        except MlflowException as error:
            if "UNIQUE" not in str(error).upper() or table not in str(error):
                raise
    return action()


def at_once(action: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Do something with every item over several connections; what that gave, in order. The first error ends it."""
    if not items:
        return []
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="sentdist-mlflow") as pool:
        waiting = [pool.submit(action, item) for item in items]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def user_name() -> str:
    """Whose runs they are."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
