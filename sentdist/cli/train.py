"""The command that trains one encoder on a person's own file: train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.interrupting import explain_interrupt
from sentdist.cli.options import DataRoot, StoreRoot
from sentdist.cli.own_data import (
    DataColumns,
    DataFile,
    DataShape,
    FileEncoding,
    HasHeader,
    TextLength,
    corpus_fields,
    say_that_it_takes_a_while,
)

if TYPE_CHECKING:
    from sentdist.api.training import TrainedEncoder


def train(
    file: DataFile,
    encoder: Annotated[str, typer.Option("--encoder", help="minilm-l6, a folder, or OWNER/NAME@COMMIT.")] = "minilm-l6",
    shape: DataShape = None,
    columns: DataColumns = "",
    header: HasHeader = None,
    encoding: FileEncoding = None,
    max_length: TextLength = 128,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the encoder.  [default: .sentdist/trained/NAME]", show_default=False)
    ] = None,
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Train an encoder once on data of your own.

    One training in this process, with default settings for the shape of the rows. Rows are held out by group for test, and the last lines
    say whether the encoder is better than the untouched one on them. `tune` tries other settings, too.
    """
    from sentdist.api.training import trained_here
    from sentdist.stages.planning.own_request import own_request

    say_that_it_takes_a_while(file)
    fields = corpus_fields(file, shape=shape, columns=columns, header=header, encoding=encoding)
    request = own_request(file, command="train", fields=fields, encoders=[encoder], data=data, max_length=max_length)
    with explain_interrupt(local=True):
        found = trained_here(request, out=out, store=store, data=data, print_line=typer.echo)
    print_trained(found, encoder)


def print_trained(found: TrainedEncoder, start: str) -> None:
    """The verdict, and what to do with the encoder."""
    typer.echo("")
    typer.echo(found.verdict.line)
    if found.verdict.outcome == "better":
        typer.echo(f"Encoder: {found.folder}, with its card. To use it: sentdist search, or SentenceTransformer(folder) in Python.")
    else:
        typer.echo(f"Keep {start}. What was trained is in {found.folder}.")
