"""The table that a terminal shows of a sweep, and what a pipe gets instead."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sentdist.cli import summary as live
from sentdist.execution.board.events import StageEvent
from sentdist.execution.plan_facts import SweepProgress


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _shown(progress: SweepProgress) -> list[str]:
    console = Console(file=io.StringIO(), width=160)
    console.print(live.progress_table(progress))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_a_table_has_the_share_that_is_done_and_a_row_for_some_of_what_runs() -> None:
    clock = _Clock()
    progress = SweepProgress({f"k{number}": 1.0 for number in range(20)}, clock=clock)
    for number in range(10):
        progress.line(StageEvent(key=f"k{number}", kind="train", label=f"rcl {number}", what="started"))
    for number in range(10, 15):
        progress.line(StageEvent(key=f"k{number}", kind="corpus", label="toy", what="finished", seconds=1.0))
    clock.now += 30.0
    head, *rows, last = _shown(progress)
    assert head.startswith("5 of 20 stages") and "25 %" in head and head.endswith("time left: known after the first training")
    assert len(rows) == live.MOST_ROWS and last == "and 2 more"
    assert "rcl 0" in rows[0] and rows[0].endswith(" 30 s"), rows[0]


def test_all_rows_are_shown_where_they_have_room_and_nothing_is_left_of_a_sweep_that_is_over() -> None:
    progress = SweepProgress({"a": 1.0})
    progress.line(StageEvent(key="a", kind="train", label="rcl", what="started"))
    assert len(_shown(progress)) == 2
    progress.line(StageEvent(key="a", kind="train", label="rcl", what="finished", seconds=1.0))
    (line,) = _shown(progress)
    assert line.startswith("1 of 1 stages") and line.endswith("100 %")


def test_a_pipe_gets_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with live.live_display() as (print_line, show):
        print_line("it [bold]goes[/] on")
    assert show is None and capsys.readouterr().out == "it [bold]goes[/] on\n"
