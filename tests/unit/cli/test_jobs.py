"""What a job of a cluster is given: places that it can reach, whatever folder it runs in."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sentdist.cli.recipes import job_command
from sentdist.errors import StoreError
from sentdist.inference.opening import IN_A_JOB, store_root


def test_the_command_for_a_job_names_places_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reported = job_command("sweep", Path("my recipes/a.yaml"), "--set", "about=it's mine", store="results", data=Path("data"))
    expected = [
        "rayjobs.sweep",
        "my recipes/a.yaml",
        "--set",
        "about=it's mine",
        "--store",
        f"{tmp_path}/results",
        "--data",
        f"{tmp_path}/data",
    ]
    assert shlex.split(reported) == expected
    tuned = job_command("sweep", Path(".sentdist/tuned/faq/recipe.yaml"), store="s3://bucket/store", data=None)
    assert shlex.split(tuned) == ["rayjobs.sweep", f"{tmp_path}/.sentdist/tuned/faq/recipe.yaml", "--store", "s3://bucket/store"]


def test_a_job_takes_no_store_in_the_folder_that_ray_throws_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_root("results") == "results"
    monkeypatch.setenv(IN_A_JOB, "{}")
    for kept in ("/shared/store", "s3://bucket/store", "~/store"):
        assert store_root(kept) == kept
    with pytest.raises(StoreError, match="Ray throws away"):
        store_root("results")
