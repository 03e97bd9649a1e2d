"""How answers look: the console, tables, numbers."""

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

KEY_LETTERS = 8  # of a key, which commands take for the whole
LOG_WIDTH = 160
LOG_EVERY_S = 30.0  # between two lines that tell a log of progress


def open_console(*, stderr: bool = False) -> Console:
    """Where a command writes: in the width of the terminal; in a log or a pipe, wide enough that no table is folded."""
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=LOG_WIDTH)


def empty_table(title: str | None, *columns: str) -> Table:
    """An empty table; its first column stands left, the others right."""
    from rich import box
    from rich.table import Table

    empty = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", min_width=len(title or "") + 2)
    for number, column in enumerate(columns):
        empty.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    return empty


def two_decimals(value: object) -> str:
    """Two decimals, or a dash for what is not defined."""
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


@contextmanager
def sentence_progress(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A bar on stderr with sentences per second while the context is open; in a log or a pipe a line every half minute.

    Gives a function that takes how many are done, and of how many if that was not known before.
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
    """Prints how far the work is, at most once in half a minute."""
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
    """As `open_texts`; prints on stderr where a file is written in another way than its name says. left_out: see `Texts`."""
    from sentdist.data.texts import open_texts

    found = open_texts(name, columns=columns, num_columns=num_columns, id_column=id_column, shown=shown)
    texts = replace(found, left_out=left_out)
    if texts.notes:
        typer.echo(f"{texts.name}: {'; '.join(texts.notes)}", err=True)
    return texts


def store_option(store: ArtifactStore) -> str:
    """` --store …` for a command that is typed next, where it would look in another store without."""
    from sentdist.inference.opening import open_store

    return "" if open_store(os.environ.get("SENTDIST_STORE")).shown == store.shown else f" --store {shlex.quote(store.shown)}"


def look_through(texts: Texts) -> int:
    """Look for mistakes in a file before an encoder begins, which takes much longer; returns how many rows there are. What can be read only
    once is not looked through: 0."""
    done = 0
    with sentence_progress("looking through", texts.num_rows) as advance:
        for done in texts.looked_through():
            advance(done)
    return done


def devices_here() -> str:
    """What this process computes on, what lies idle and why."""
    from sentdist.plan.sections import Runtime
    from sentdist.stages.devices import on_this_machine

    return on_this_machine(Runtime())[1]


def tell_rows(texts: Texts) -> None:
    """Say on stderr which rows of a file were left out, and which hold a word for no value."""
    for line in (texts.left_out.line if texts.left_out is not None else "", texts.nothing.line):
        if line:
            typer.echo(line, err=True)


def tell_prompts(*prompts: Prompt, err: bool = True) -> None:
    """Say which prompts are used and why; err: on stderr."""
    for prompt in prompts:
        if prompt.line:
            typer.echo(prompt.line, err=err)


def tell_of_encoder(loaded: LoadedEncoder) -> None:
    """Say on stderr how many of the embedded sentences hold no word that the encoder knows."""
    number = loaded.unknown.num_sentences
    if number:
        which = f"{counted(number, 'sentence')} without a word that the encoder's tokenizer knows"
        first = brief(loaded.unknown.first)
        typer.echo(
            f"{which}: {first}. Its embedding says nothing of it. Take an encoder for its language."
            if number == 1
            else f"{which}, such as {first}: their embeddings say nothing of them, and several have one embedding. "
            "Take an encoder for their language.",
            err=True,
        )
