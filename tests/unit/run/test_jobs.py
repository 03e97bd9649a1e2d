"""A sweep as a job: what it gets from this shell, which lines are shown, and its exit code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.job_submission import JobStatus
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import ResourceError
from sentdist.run import health, jobs
from sentdist.run.jobs import Job, follow, job_environment, submit_sweep

TEXT = (
    "2026-11-29 22:10:00,123\tINFO job_manager.py:568 -- Runtime env is setting up.\n",
    "Running entrypoint for job raysubmit_1: python -m rayjobs.sweep demo\n\x1b[36m12:00:00",
    "\x1b[0m  [1/2]  train\n2026-11-29 22:10:09,123\tWARNING util.py:9 -- Old.\n\n",
    "WARNING: a loss of our own is not finite",
)
OURS = ["12:00:00  [1/2]  train", "", "WARNING: a loss of our own is not finite"]


class _Client:
    """As Ray's, of a job that has ended so."""

    def __init__(self, status: JobStatus, code: int | None) -> None:
        self.status, self.code = status, code
        self.sent: dict[str, Any] = {}

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        for text in TEXT:
            yield text

    def get_job_status(self, job_id: str) -> JobStatus:
        return self.status

    def get_job_info(self, job_id: str) -> SimpleNamespace:
        return SimpleNamespace(driver_exit_code=self.code, message="no such module")

    def submit_job(self, **sent: Any) -> str:
        self.sent = sent
        return "raysubmit_1"


def test_a_job_gets_paths_of_secrets_and_places_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in a copy of the folder: data were found while planning and not by the job, which refused the store."""
    monkeypatch.chdir(tmp_path)
    shell = {"SENTDIST_DATA": "../shared/my data", "SENTDIST_MLFLOW_PASSWORD_FILE": "a/file", "MLFLOW_TRACKING_PASSWORD": "secret"}
    found = job_environment(shell | {"SENTDIST_STORE": "s3://KEY:SECRET@bucket/päth"})
    expected = {"SENTDIST_DATA": f"{tmp_path}/../shared/my data", "SENTDIST_STORE": "s3://KEY:SECRET@bucket/päth"}
    assert found == expected | {"SENTDIST_MLFLOW_PASSWORD_FILE": "a/file"}


def test_no_address_of_a_job_is_in_its_command_line_and_the_dashboard_shows_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine reads command lines, and an address may hold the key of a bucket."""
    client = _Client(JobStatus.SUCCEEDED, 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(jobs.ADDRESS, "http://127.0.0.1:1")
    monkeypatch.setattr(health, "dashboard", lambda _: health.Finding(subject="Ray's dashboard", state="good", text=""))
    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", lambda _: client)
    places = {"SENTDIST_STORE": "s3://KEY:SECRET@bucket", "SENTDIST_DATA": "s3://b/data"}
    done = CliRunner().invoke(app, ["submit", "demo", "--set", "seeds=[1, 2]"], env=places)
    assert done.exit_code == 0, done.output
    assert client.sent["entrypoint"] == "python -m rayjobs.sweep demo --set 'seeds=[1, 2]'"
    assert client.sent["metadata"] == {"job_name": "demo"}
    assert client.sent["runtime_env"]["env_vars"].items() >= places.items()
    assert done.output.splitlines()[1:] == OURS


def test_a_job_is_followed_by_its_own_lines_to_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: tuple[tuple[JobStatus, int | None, list[str], int], ...] = (
        (JobStatus.SUCCEEDED, 0, [], 0),
        (JobStatus.FAILED, 2, [], 2),
        (JobStatus.STOPPED, None, ["raysubmit_1 was stopped."], 1),
    )
    for status, code, more, expected in ends:
        lines: list[str] = []
        assert follow(Job(id="raysubmit_1", sweep="demo", client=_Client(status, code)), lines.append) == expected  # type: ignore[arg-type]
        assert lines == OURS + more
    monkeypatch.setenv(jobs.ADDRESS, "http://127.0.0.1:1")
    with pytest.raises(ResourceError, match=r"http://127\.0\.0\.1:1.*sentdist up"):
        submit_sweep("rayjobs.sweep demo", "demo", {})
