"""Print results: console, tables, numbers, progress, and notes on files, prompts and encoders."""

from __future__ import annotations

import os
import shlex
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
    from sentdist.inference.opening import Prompt
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.store.store import ArtifactStore

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


def two_decimals(value: object) -> str:
    """Format a number with two decimals, or an undefined value as a dash."""
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


@contextmanager
def sentence_progress(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr with sentences per second, or in a log or pipe a line every 30 s.

    Yields a function of the number done and, if unknown before, the total.
    """
    console = open_console(stderr=True)
    if not console.is_terminal:
        yield _logged_progress(what, total)
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    speed = TextColumn("{task.fields[speed]:,.0f} sentences/s")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), speed, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total, speed=0.0)

        def advance(done: int, of: int | None = total) -> None:
            progress.update(task, completed=done, total=of, speed=done / (progress.tasks[0].elapsed or 1e-9))

        yield advance


def _logged_progress(what: str, total: int | None) -> Callable[..., None]:
    """Print progress at most every 30 s."""
    started = printed_at = monotonic()

    def advance(done: int, of: int | None = total) -> None:
        nonlocal printed_at
        now = monotonic()
        if now - printed_at < LOG_EVERY_S:
            return
        printed_at = now
        how_many = f"{done:,}" if of is None else f"{done:,} of {of:,}"
        typer.echo(f"{what}: {how_many} sentences, {done / (now - started):,.0f} a second", err=True)

    return advance


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
    texts = replace(found, left_out=left_out)
    if texts.notes:
        typer.echo(f"{texts.name}: {'; '.join(texts.notes)}", err=True)
    return texts


def store_option(store: ArtifactStore) -> str:
    """Return ` --store …` for a suggested command, if it would use another store without it."""
    from sentdist.inference.opening import open_store

    return "" if open_store(os.environ.get("SENTDIST_STORE")).shown == store.shown else f" --store {shlex.quote(store.shown)}"


def look_through(texts: Texts) -> int:
    """Check a file before the slower encoding; return its number of rows. A stream, which can be read only once, is not checked: 0."""
    done = 0
    with sentence_progress("checking", texts.num_rows) as advance:
        for done in texts.looked_through():
            advance(done)
    return done


def devices_here() -> str:
    """Describe the device of this process, and idle ones with the reason."""
    from sentdist.recipe.sections import Runtime
    from sentdist.stages.devices import on_this_machine

    return on_this_machine(Runtime())[1]


def tell_rows(texts: Texts) -> None:
    """Print on stderr which rows of a file were left out."""
    if texts.left_out is not None and texts.left_out.line:
        typer.echo(texts.left_out.line, err=True)


def tell_prompts(*prompts: Prompt, err: bool = True) -> None:
    """Print which prompts are used and why; err: on stderr."""
    for prompt in prompts:
        if prompt.line:
            typer.echo(prompt.line, err=err)


def tell_of_encoder(loaded: LoadedEncoder) -> None:
    """Print on stderr how many embedded sentences have no word that the encoder knows."""
    number = loaded.unknown.num_sentences
    if number:
        which = f"{counted(number, 'sentence')} without a word that the encoder's tokenizer knows"
        first = brief(loaded.unknown.first)
        typer.echo(
            f"{which}: {first}. Its embedding has no meaning. Use an encoder for its language."
            if number == 1
            else f"{which}, such as {first}: their embeddings have no meaning, and several are equal. Use an encoder for their language.",
            err=True,
        )
