"""How answers look on a terminal and in a log: progress in a log; and what a job of a cluster is given."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sentdist.cli import printing
from sentdist.cli.printing import sentence_progress
from sentdist.cli.recipes import job_command
from sentdist.errors import StoreError
from sentdist.inference.opening import IN_A_JOB, store_root


def test_a_log_has_no_bar_and_is_shown_how_far_it_is_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had one line for as many minutes as it took."""
    now = [100.0]
    monkeypatch.setattr(printing, "monotonic", lambda: now[0])
    with sentence_progress("encoding", 10_000) as advance:
        for seconds, done in ((20, 1000), (11, 2000), (28, 3000), (2, 4000)):
            now[0] += seconds
            advance(done)
    assert capsys.readouterr() == (
        "",
        "encoding: 2,000 of 10,000 sentences, 65 a second\nencoding: 4,000 of 10,000 sentences, 66 a second\n",
    )
    with sentence_progress("encoding", None) as advance:
        now[0] += 40
        advance(2000)
        now[0] += 40
        advance(2000, 4000)
    assert capsys.readouterr() == ("", "encoding: 2,000 sentences, 50 a second\nencoding: 2,000 of 4,000 sentences, 25 a second\n")


def test_the_command_for_a_job_names_a_recipe_that_the_job_has() -> None:
    assert shlex.split(job_command(Path("my recipes/a.yaml"), ["about=it's mine"])) == [
        "rayjobs.sweep",
        "my recipes/a.yaml",
        "--set",
        "about=it's mine",
    ]
    assert job_command(Path(".sentdist/tuned/faq/recipe.yaml"), []) == f"rayjobs.sweep {Path.cwd()}/.sentdist/tuned/faq/recipe.yaml"


def test_a_job_takes_no_store_in_the_folder_that_ray_throws_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_root("results") == "results"
    monkeypatch.setenv(IN_A_JOB, "{}")
    for kept in ("/shared/store", "s3://bucket/store", "~/store"):
        assert store_root(kept) == kept
    with pytest.raises(StoreError, match="Ray deletes"):
        store_root("results")
