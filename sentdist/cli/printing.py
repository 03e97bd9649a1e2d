"""Print results: console, tables, JSON, progress, and notes on files, prompts and encoders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

import typer

from sentdist.errors import brief, counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sentdist.data.cells import LeftOut
    from sentdist.data.texts import Texts
    from sentdist.inference.ready_encoder import LoadedEncoder

KEY_LETTERS = 8  # digits of a key that are printed; commands accept them
LOG_WIDTH = 160
LOG_EVERY_S = 30.0  # between two lines of progress in a log


def open_console(*, stderr: bool = False) -> Console:
    """Return a console of the terminal's width, or of 160 characters in a log or pipe."""
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=LOG_WIDTH)


def empty_table(title: str | None, *columns: str) -> Table:
    """Return an empty table whose first column is left-aligned, the others right-aligned."""
    from rich import box
    from rich.table import Table

    empty = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", min_width=len(title or "") + 2)
    for number, column in enumerate(columns):
        empty.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    return empty


def print_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def two_decimals(value: object) -> str:
    """Format a number with two decimals, or an undefined value as a dash."""
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def print_notes(*lines: str, err: bool = True) -> None:
    """Print the lines that are not empty, each once. err: on stderr."""
    for line in dict.fromkeys(filter(None, lines)):
        typer.echo(line, err=err)


@contextmanager
def sentence_progress(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr with sentences per second, or in a log or pipe a line every 30 s.

    Yields a function of the number done and, if unknown before, the total.
    """
    console = open_console(stderr=True)
    started = printed_at = monotonic()

    def log(done: int, of: int | None = total) -> None:
        nonlocal printed_at
        now = monotonic()
        if now - printed_at >= LOG_EVERY_S:
            printed_at = now
            how_many = f"{done:,}" if of is None else f"{done:,} of {of:,}"
            typer.echo(f"{what}: {how_many} sentences, {done / (now - started):,.0f} a second", err=True)

    if not console.is_terminal:
        yield log
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    speed = TextColumn("{task.fields[speed]:,.0f} sentences/s")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), speed, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total, speed=0.0)

        def advance(done: int, of: int | None = total) -> None:
            progress.update(task, completed=done, total=of, speed=done / (progress.tasks[0].elapsed or 1e-9))

        yield advance


def found_texts(
    name: str,
    *,
    columns: Sequence[str] = (),
    num_columns: int = 1,
    id_column: str | None = None,
    shown: Sequence[str] = (),
    left_out: LeftOut | None = None,
) -> Texts:
    """Open texts as `open_texts` does; print on stderr how a file differs from its name. left_out: see `Texts`."""
    from sentdist.data.texts import open_texts

    found = open_texts(name, columns=columns, num_columns=num_columns, id_column=id_column, shown=shown)
    print_notes(f"{found.name}: {'; '.join(found.notes)}" if found.notes else "")
    return replace(found, left_out=left_out)


def look_through(texts: Texts) -> int:
    """Check a file before the slower encoding; return its number of rows. A stream, which can be read only once, is not checked: 0."""
    done = 0
    with sentence_progress("checking", texts.num_rows) as advance:
        for done in texts.looked_through():
            advance(done)
    return done


def print_notes_on(loaded: LoadedEncoder, texts: Texts | None = None) -> None:
    """Print on stderr how many embedded sentences have no word that the encoder knows, and which rows of a file were left out."""
    unknown = loaded.unknown
    if unknown.num_sentences:
        what = f"{counted(unknown.num_sentences, 'sentence')} without a word that the encoder's tokenizer knows, such as"
        print_notes(f"{what} {brief(unknown.first)}: embeddings without a meaning. Use an encoder for this language.")
    if texts is not None and texts.left_out is not None:
        print_notes(texts.left_out.line)
