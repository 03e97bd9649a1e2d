"""The lines of a sweep, and on a terminal a table under them of what runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from sentdist.cli.printing import open_console
from sentdist.errors import duration
from sentdist.print_line import PrintLine

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sentdist.execution.progress import Show, SweepProgress

MOST_ROWS = 8
BAR_WIDTH = 40


@contextmanager
def live_display() -> Iterator[tuple[PrintLine, Show | None]]:
    """What prints a line, and what shows a sweep's progress while the context is open; in a pipe or a log there are lines only."""
    console = open_console()
    if not console.is_terminal:
        yield typer.echo, None
        return

    from rich.live import Live

    with Live(console=console, transient=True, refresh_per_second=4) as live:

        def print_line(line: str) -> None:
            live.console.print(line, markup=False, highlight=False, soft_wrap=True)

        def show(progress: SweepProgress) -> None:
            live.update(progress_table(progress))

        yield print_line, show


def progress_table(progress: SweepProgress) -> RenderableType:
    """How many stages are finished, as a bar, and the stages that run."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2))
    left = progress.left or ("" if progress.num_finished == progress.total else "time left: known after the first training")
    bar = ProgressBar(total=1.0, completed=progress.share, width=BAR_WIDTH)
    head.add_row(f"{progress.num_finished} of {progress.total} stages", bar, f"{100 * progress.share:.0f} %", left)
    rows = Table.grid(padding=(0, 2))
    for running in list(progress.running.values())[:MOST_ROWS]:
        rows.add_row(Text(running.stage), running.said, duration(progress.now - running.since))
    others = len(progress.running) - MOST_ROWS
    return Group(head, rows, f"and {others} more") if others > 0 else Group(head, rows)
