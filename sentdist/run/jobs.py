"""Submit a sweep as a Ray job, choose its environment, and print its lines to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import ResourceError, first_line
from sentdist.run import health
from sentdist.services.state import state_of
from sentdist.text import PrintLine

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

ADDRESS = "RAY_API_SERVER_ADDRESS"
# Secrets only as paths; but an address of a store or of data may contain one, so these are in no command line, which all users can read.
PASSED_ON = (
    "SENTDIST_STORE", "SENTDIST_DATA", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "SENTDIST_MLFLOW_PASSWORD_FILE",
    "MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE",
)  # fmt: skip
PLACES = ("SENTDIST_STORE", "SENTDIST_DATA")
PAUSE_S = 0.5
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OF_RAY = re.compile(r"\d{4}-\d\d-\d\d \S+\s+(INFO|SUCC|WARN\w*) \S+\.py:\d+ |Running entrypoint for job ")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that was submitted to a cluster. id: Ray's submission ID."""

    id: str
    sweep: str
    client: JobSubmissionClient


def use_servers_of(home: Path, environment: MutableMapping[str, str]) -> None:
    """Use the servers that `sentdist up` started in this folder, unless the environment names a dashboard."""
    if ADDRESS in environment:
        return
    state = state_of(home)
    running = state.running("ray")
    if running is not None and running.is_alive:
        state.check_owner()
        theirs = state.environment(environment)
        environment.clear()
        environment.update(theirs)


def job_environment(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the environment of a job. A job runs in a copy of this folder, so relative paths become absolute."""
    given = {name: environment[name] for name in PASSED_ON if name in environment}
    return {name: _whole_path(value) if name in PLACES else value for name, value in given.items()}


def _whole_path(place: str) -> str:
    return place if "://" in place else str(Path(place).expanduser().absolute())


def submit_sweep(command: str, sweep: str, environment: dict[str, str]) -> Job:
    """Submit a job with a copy of this folder. command: the words after `python -m`.

    Raises:
        ResourceError: no dashboard answers, or it refuses the token or the job.
    """
    address = os.environ.get(ADDRESS)
    found = health.dashboard(address)
    where = "sentdist submit"
    if found.state != "good":
        raise ResourceError(where=where, found=found.text, expected="Ray's dashboard", remedy=f"{ADDRESS} names another.")
    from ray.job_submission import JobSubmissionClient

    try:
        client = JobSubmissionClient(address or health.DASHBOARD)
        with _quiet():
            id = client.submit_job(
                entrypoint=f"python -m {command}",
                runtime_env={"working_dir": ".", "env_vars": environment},
                metadata={"job_name": sweep},  # which the dashboard shows
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise ResourceError(
            where=where, found=first_line(error), expected="a cluster that takes the job",
            remedy=f"The job gets a copy of {Path.cwd()}: list large files in .gitignore. `sentdist doctor` checks the cluster.",
        ) from None  # fmt: skip
    return Job(id=id, sweep=sweep, client=client)


def follow(job: Job, print_line: PrintLine) -> int:
    """Print the lines of a job until it ends, and return its exit code.

    Raises:
        ResourceError: the connection was lost; the job goes on.
    """
    try:
        with _quiet():
            asyncio.run(_print_lines(job, print_line))
        while not (status := job.client.get_job_status(job.id)).is_terminal():
            time.sleep(PAUSE_S)
        ended = job.client.get_job_info(job.id)
    except (OSError, RuntimeError) as error:
        raise ResourceError(
            where=f"job {job.id}", found=first_line(error), expected="the connection to Ray's dashboard",
            remedy=f"The sweep may go on: `ray job logs --follow {shlex.quote(job.id)}`. `sentdist stop {job.sweep}` ends it.",
        ) from None  # fmt: skip
    if status == "SUCCEEDED":
        return 0
    if status == "STOPPED":
        print_line(f"{job.id} was stopped.")
    elif not ended.driver_exit_code:  # the command was never started
        print_line(str(ended.message))
    return ended.driver_exit_code or 1


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide messages of Ray's client: the size of the folder's copy, closed connections."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


async def _print_lines(job: Job, print_line: PrintLine) -> None:
    rest = ""
    async for text in job.client.tail_job_logs(job.id):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            _show(line, print_line)
    if rest:
        _show(rest, print_line)


def _show(line: str, print_line: PrintLine) -> None:
    line = _COLOURS.sub("", line)
    if not _OF_RAY.match(line):
        print_line(line)
