"""What Ctrl-C says while a recipe is built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

INTERRUPTED = 130  # exit code, as shells have it


@contextmanager
def explain_interrupt(*, local: bool) -> Iterator[None]:
    """Ctrl-C ends the command with a sentence that says what is kept and how to go on. local: in this process, where a training writes
    no checkpoints."""
    try:
        yield
    except KeyboardInterrupt:
        unfinished = "a training that ran starts over" if local else "unfinished trainings go on from their last checkpoints"
        typer.echo(f"Stopped. All that is finished is kept: the same command goes on from there; {unfinished}.")
        raise typer.Exit(INTERRUPTED) from None
