"""Connect to an MLflow server: an outage costs a warning, never a training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from sentdist.errors import RecipeError
from sentdist.text import without_secrets

if TYPE_CHECKING:
    from mlflow import MlflowClient

Answer = TypeVar("Answer")

PASSWORD_FILE = "SENTDIST_MLFLOW_PASSWORD_FILE"
PAUSE_S, MAX_PAUSE_S = 30.0, 600.0  # after a failed connection, doubled each time: a dead server costs little
QUIET = {  # otherwise every ended run and every upload is printed
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
BOUNDS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "8", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}  # MLflow's own: minutes
PATIENT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "600", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "2"}


class Server:
    """A bounded connection. Errors become lines in `warnings`, one for each outage.

    Raises:
        RecipeError: not the address of a server (workers on other machines could not reach a file).
    """

    def __init__(self, uri: str) -> None:
        check_address(uri)
        self.uri = uri.rstrip("/")
        self.page = without_secrets(self.uri)
        self.warnings: list[str] = []
        self.trouble = ""  # why the last attempt failed
        self._client: MlflowClient | None = None
        self._is_away = False
        self._not_before = 0.0
        self._pause_s = PAUSE_S

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_client": None}

    def attempt(self, what: str, action: Callable[[MlflowClient], Answer]) -> Answer | None:
        """Run an action with the client; return None and add a warning if it fails. After an outage nothing is tried for a while."""
        if time.monotonic() < self._not_before:
            return None
        try:
            if self._client is None:
                self._client = connect(self.uri)
            answer = action(self._client)
        except Exception as error:  # training must not fail because of tracking; the warning has the error
            self._note(what, error)
            return None
        self._is_away, self._pause_s = False, PAUSE_S
        return answer

    def look_again(self) -> None:
        """Try again at the next attempt, even after an outage."""
        self._not_before = 0.0

    def _note(self, what: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {' '.join(without_secrets(str(error)).split())[:200]}"
        is_connection = isinstance(error, OSError) or "API request to" in reason  # MLflow wraps connection errors and refusals
        state = ": could not" if not is_connection else " refuses to" if "failed with error code 4" in reason else " is away: could not"
        self.trouble = f"MLflow at {self.page}{state} {what}: {reason}"
        line = f"{self.trouble}; the store keeps everything, and `sentdist report --rebuild-mlflow` brings it in."
        if line not in self.warnings and not (is_connection and self._is_away):
            self.warnings.append(line)
        if is_connection:
            self._is_away, self._not_before = True, time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)


def check_address(uri: str) -> None:
    """Raise RecipeError for what cannot be the address of a server."""
    try:
        parts = urlsplit(uri)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
    except ValueError:  # a port that is not a number, or too large
        pass
    raise RecipeError(
        where="MLFLOW_TRACKING_URI", found=f'"{without_secrets(uri)}"', expected="the http(s) address of an MLflow server",
        remedy="Start one with `mlflow server`, or unset the variable to run without.",
    )  # fmt: skip


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
