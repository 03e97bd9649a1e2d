"""Python looks for garbage rarely in commands and workers, and as a person said where one did."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sentdist
from sentdist.cli import app
from sentdist.execution.board import actor as stage_task
from sentdist.machine import FULL, MIDDLE, YOUNG, collect_rarely


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_a_command_collects_rarely() -> None:
    assert CliRunner().invoke(app, ["objectives"]).exit_code == 0
    assert gc.get_threshold() == (YOUNG, MIDDLE, FULL)


def test_a_process_that_builds_stages_collects_rarely() -> None:
    body: Any = lambda *_: gc.get_threshold()  # noqa: E731
    assert stage_task._build._function(body, None, None, None) == (YOUNG, MIDDLE, FULL)  # type: ignore[attr-defined]


@pytest.mark.parametrize("said", [(0, 10, 10), (100_000, 5, 5)])
def test_what_somebody_said_stays(said: tuple[int, int, int]) -> None:
    gc.set_threshold(*said)
    collect_rarely()
    assert gc.get_threshold() == said


def test_a_person_s_own_python_is_left_as_it_is(tiny_encoder_dir: Path) -> None:
    sentdist.Encoder.load(tiny_encoder_dir).encode(["a man"])
    assert gc.get_threshold() == (700, 10, 10)


LOOP = """
from sentdist.machine import collect_rarely

class Loop:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("looked for")

{call}
Loop()
"""


@pytest.mark.parametrize(("call", "said"), [("", "looked for\n"), ("collect_rarely()", "")])
def test_at_the_end_of_a_process_garbage_goes_with_it(call: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOOP.format(call=call)], capture_output=True, text=True, check=True)
    assert done.stdout == said
