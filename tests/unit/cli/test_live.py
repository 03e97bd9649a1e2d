"""The table that a terminal shows of a sweep, and what a pipe gets instead."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sentdist.cli import live
from sentdist.execution.board.events import StageEvent
from sentdist.execution.progress import SweepProgress


def test_a_table_has_the_share_that_is_done_and_a_row_for_some_of_what_runs() -> None:
    now = [1000.0]
    progress = SweepProgress({f"k{number}": 1.0 for number in range(20)}, clock=lambda: now[0])
    for number in range(10):
        progress.line(StageEvent(key=f"k{number}", kind="train", label=f"rcl {number}", what="started"))
    for number in range(10, 15):
        progress.line(StageEvent(key=f"k{number}", kind="corpus", label="toy", what="finished", seconds=1.0))
    now[0] += 30.0
    file = io.StringIO()
    Console(file=file, width=160).print(live.progress_table(progress))
    head, *rows, last = [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]
    assert head.startswith("5 of 20 stages") and "25 %" in head and head.endswith("time left: known after the first training")
    assert len(rows) == live.MOST_ROWS and last == "and 2 more"
    assert "rcl 0" in rows[0] and rows[0].endswith(" 30 s"), rows[0]


def test_a_pipe_gets_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with live.live_display() as (print_line, show):
        print_line("it [bold]goes[/] on")
    assert show is None and capsys.readouterr().out == "it [bold]goes[/] on\n"
