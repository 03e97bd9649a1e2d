"""Talk to an MLflow server without waiting long for it or failing because of it."""

from __future__ import annotations

import getpass
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from sentdist.errors import RecipeError
from sentdist.machine import environment_with
from sentdist.text import without_secrets
from sentdist.tracking.pages import run_page
from sentdist.tracking.run_values import metric_name, shown

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run


Answer = TypeVar("Answer")

PASSWORD_FILE = "SENTDIST_MLFLOW_PASSWORD_FILE"
PROBE_S = 2.0
PAUSE_S, MAX_PAUSE_S = 30.0, 600.0  # pause after a failed connection, doubled each time: a dead server costs little
QUIET = {  # otherwise every ended run and every upload is printed
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
BOUNDS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0"}
PATIENT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "600", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "2"}


class Server:
    """A bounded connection. Errors become lines in `warnings`, one for each outage.

    Raises:
        RecipeError: not the address of a server (workers on other machines could not reach a file).
    """

    def __init__(self, uri: str) -> None:
        if not is_server(uri):
            raise no_server(uri)
        self.uri = uri.rstrip("/")
        self.warnings: list[str] = []
        self.trouble = ""  # why the last attempt failed
        self._client: MlflowClient | None = None
        self._away_until = 0.0
        self._pause_s = PAUSE_S
        self._is_away = False

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_client": None}

    @property
    def is_away(self) -> bool:
        """Whether the server did not answer, or refused, in the last attempt."""
        return self._is_away

    @property
    def page(self) -> str:
        """The address without secrets."""
        return without_secrets(self.uri)

    def run_page(self, experiment_id: str, run_id: str) -> str:
        return f"{self.page}/{run_page(experiment_id, run_id)}"

    def attempt(self, what: str, action: Callable[[MlflowClient], Answer], *, wait_s: float | None = None) -> Answer | None:
        """Run an action with the client; return None and add a warning if it fails. After an outage nothing is tried for a while.

        Args:
            what: The action as a verb with object, for the warning.
            wait_s: Limit in seconds; a slower action continues in the background, and the server counts as away.
        """
        if time.monotonic() < self._away_until:
            return None
        if not self._is_there():
            self._go_away(what, "nothing answers there")
            return None
        try:
            client = self._connected()
            answer = action(client) if wait_s is None else _within(wait_s, lambda: action(client))
        except Exception as error:  # training must not fail because of tracking; the warning has the error
            if self._is_there() and not _is_connection(error):
                self.trouble = f"MLflow at {self.page}: could not {what}: {_one_line(error)}"
                self._warn(self.trouble)
            else:
                self._go_away(what, _one_line(error))
            return None
        self._is_away, self._pause_s = False, PAUSE_S
        return answer

    def look_again(self) -> None:
        """Try again at the next attempt, even after an outage."""
        self._away_until = 0.0

    def _connected(self) -> MlflowClient:
        if self._client is None:
            self._client = connect(self.uri)
        return self._client

    def _is_there(self) -> bool:
        try:
            with socket.create_connection(_first_hop(self.uri), timeout=PROBE_S):
                return True
        except (OSError, ValueError):  # ValueError: an invalid address of a proxy
            return False

    def _go_away(self, what: str, reason: str) -> None:
        self._away_until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        state = "refuses" if "failed with error code 4" in reason else "is away"
        self.trouble = f"MLflow at {self.page} {state} (could not {what}: {reason})"
        if not self._is_away:
            self._warn(f"{self.trouble}; training goes on, the store keeps everything, and `sentdist track --rebuild` brings it in.")
        self._is_away = True

    def _warn(self, line: str) -> None:
        if line not in self.warnings:
            self.warnings.append(line)


def no_server(uri: str) -> RecipeError:
    """Return the error for an address that cannot be that of a server."""
    return RecipeError(
        where="MLFLOW_TRACKING_URI", found=f'"{uri}"', expected="the http(s) address of an MLflow server",
        remedy="Start one with `mlflow server`, or unset the variable to run without.",
    )  # fmt: skip


def is_server(uri: str) -> bool:
    """Return whether an address may be that of a server."""
    try:
        parts = urlsplit(uri)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or too large
        return False


def _first_hop(uri: str) -> tuple[str, int]:
    """Host and port that a client connects to: the server's, or those of the proxy that the environment names for it."""
    parts = urlsplit(uri)
    host, proxies = parts.hostname or "", getproxies()
    if (proxy := proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(host):
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host = parts.hostname or ""
    return host, parts.port or (443 if parts.scheme == "https" else 80)


def connect(uri: str) -> MlflowClient:
    """Return a client with short timeouts (the user's MLFLOW_HTTP_REQUEST_* settings win), without telemetry and output."""
    for name, value in (QUIET | BOUNDS).items():
        os.environ.setdefault(name, value)
    read_password()
    from mlflow import MlflowClient  # 2.7 s, only at the first message to a server

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def read_password() -> None:
    """Set MLFLOW_TRACKING_PASSWORD, which MLflow's client reads, from the file that SENTDIST_MLFLOW_PASSWORD_FILE names.

    A job gets the path of a file that only its owner can read: values passed directly are visible in the command line of `ray job submit`.

    Raises:
        RecipeError: the file cannot be read.
    """
    path = os.environ.get(PASSWORD_FILE)
    if not path or os.environ.get("MLFLOW_TRACKING_PASSWORD"):
        return
    try:
        os.environ["MLFLOW_TRACKING_PASSWORD"] = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            where=PASSWORD_FILE, found=f"{path}, which cannot be read ({error})", expected="the file with MLflow's password",
            remedy="Start the servers again (`sentdist up`), or unset the variable and set MLFLOW_TRACKING_PASSWORD.",
        ) from None  # fmt: skip


@contextmanager
def patience() -> Iterator[None]:
    """Use long timeouts, for a large upload after training."""
    with environment_with(PATIENT):
        yield


def _within(seconds: float, action: Callable[[], Answer]) -> Answer:
    """Return or raise the outcome of an action.

    Raises:
        TimeoutError: it takes longer; it continues, and its outcome is dropped.
    """
    answer: Future[Answer] = Future()

    def act() -> None:
        try:
            answer.set_result(action())
        except Exception as error:  # raised in the waiting thread
            answer.set_exception(error)

    threading.Thread(target=act, name="sentdist-mlflow", daemon=True).start()
    done, _ = wait([answer], timeout=seconds)
    if not done:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return answer.result()


def _is_connection(error: Exception) -> bool:
    """MLflow wraps refused and broken connections, and answers of a server that shuts down, in its own exception."""
    text = str(error)
    return isinstance(error, OSError) or "API request to" in text or "Max retries exceeded" in text


def _one_line(error: Exception) -> str:
    text = " ".join(without_secrets(str(error)).split())
    return f"{type(error).__name__}: {text[:200]}"


Item = TypeVar("Item")

PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
CONNECTIONS = 4  # for many runs at once


def ensure_experiment(client: MlflowClient, name: str, tags: Mapping[str, str]) -> str:
    """Return the id of the experiment with this name and these tags, created or restored if needed."""
    from mlflow.exceptions import MlflowException

    found: Experiment | None = client.get_experiment_by_name(name)
    if found is None:
        try:
            client.create_experiment(name, tags=dict(tags))
        except MlflowException:  # another driver created it first
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
    """Return the oldest run with that tag; None if there is none."""
    found = client.search_runs(
        [experiment_id], filter_string=f"tags.`{tag}` = '{value}'", order_by=["attributes.start_time ASC"], max_results=1
    )
    return found[0] if found else None


class RunIdentity(TypedDict):
    """What a run is created with."""

    name: str
    identity: tuple[str, str]  # tag and value by which it is found again
    tags: Mapping[str, str]  # further ones


def create_run(client: MlflowClient, experiment_id: str, *, started_ms: int | None = None, **given: Unpack[RunIdentity]) -> Run:
    """Create a run that starts at `started_ms`; None: now."""
    tag, value = given["identity"]
    return client.create_run(experiment_id, run_name=given["name"], start_time=started_ms, tags={**given["tags"], tag: value})


def ensure_run(client: MlflowClient, experiment_id: str, *, started_ms: int | None = None, **given: Unpack[RunIdentity]) -> Run:
    """Return the run with the identity tag, created if missing; of two created at once, the older one is kept."""
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
    """Yield every run that passes the filter, page by page."""
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], filter_string=filter_string, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def add_model_metrics(client: MlflowClient, run_id: str, model_id: str, values: Mapping[str, float]) -> None:
    """Log scores of a run also on its model."""
    from mlflow.entities import Metric

    now_ms = int(time.time() * 1000)
    client.log_batch(
        run_id, metrics=[Metric(metric_name(name), shown(value), now_ms, 0, model_id=model_id) for name, value in values.items()]
    )


def despite_collisions(action: Callable[[], Answer], *, table: str, at_most: int = 8) -> Answer:
    """Run an action, again if another request has created the same row of `table` meanwhile.

    The server checks for a row, then creates it: of two requests at once the second breaks a constraint. Each failure means that another
    request succeeded, so there are at most as many as requests at once (`at_most`).
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
    """Run an action on every item over several connections; return the results in order. The first error ends it."""
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
    """Return the name of the user of the runs."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
