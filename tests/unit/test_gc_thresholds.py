"""Python looks for garbage rarely in commands and workers, and as a person said where one did."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.gc_thresholds import FULL, MIDDLE, YOUNG, collect_rarely


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_a_command_collects_rarely() -> None:
    assert CliRunner().invoke(app, ["objectives"]).exit_code == 0
    assert gc.get_threshold() == (YOUNG, MIDDLE, FULL)


def test_what_somebody_said_stays() -> None:
    for said in [(0, 10, 10), (100_000, 5, 5)]:
        gc.set_threshold(*said)
        collect_rarely()
        assert gc.get_threshold() == said
