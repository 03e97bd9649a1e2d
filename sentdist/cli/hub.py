"""Commands that speak with the Hugging Face Hub: pin, push."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from sentdist.cli.completing import trainings
from sentdist.cli.options import StoreRoot
from sentdist.encoder_export import card_of, export_encoder
from sentdist.errors import counted
from sentdist.inference.opening import encoder_use, open_store
from sentdist.sizes import disk_size


def pin(
    name: Annotated[str, typer.Argument(help="OWNER/NAME of an encoder; hub:OWNER/NAME of a data set.", show_default=False)],
    revision: Annotated[str | None, typer.Option("--revision", help="A branch or tag.  [default: main]", show_default=False)] = None,
) -> None:
    """Print the commit of a name on the Hugging Face Hub.

    Which a recipe needs beside the name, so that it means the same tomorrow.
    """
    from sentdist.inference.hub import commit_of

    is_data = name.startswith("hub:")
    plain = name.removeprefix("hub:").partition(":")[0]
    commit = commit_of(plain, "dataset" if is_data else "model", revision=revision)
    typer.echo(commit)
    fields = (
        (f"corpus.source={name}", f"corpus.revision={commit}") if is_data else (f"encoder.checkpoint={plain}", f"encoder.revision={commit}")
    )
    typer.echo(f"In a command: {' '.join(f'--set {field}' for field in fields)}", err=True)


def push(
    encoder: Annotated[str, typer.Argument(help="Key or label of a training.", show_default=False, autocompletion=trainings)],
    to: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository; made if it is not there.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run/--send", help="Only print the card and the files; or send them.")] = True,
    private: Annotated[bool, typer.Option("--private/--public", help="Who may see a repository that is made.")] = True,
    licence: Annotated[str | None, typer.Option("--licence", help="As the hub spells it, such as apache-2.0.", show_default=False)] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language", help="Of the texts, as the hub spells it; left out: what the base model's card says.", show_default=False
        ),
    ] = None,
    store: StoreRoot = None,
) -> None:
    """Send an encoder and its card to the Hugging Face Hub.

    The card has its scores with intervals, its data with leaks, settings, licence, citations. Without --send nothing leaves this machine.
    """
    from sentdist.inference.hub import check_name, send_folder

    check_name(to)
    opened = open_store(store)
    trained = opened.find(encoder, kind="train")
    card = card_of(trained, opened, name=to, licence=licence, language=(language,) if language else None)
    use = encoder_use(str(opened.folder(trained)), store, revision=None, pooling=None, max_length=None, precision="fp32")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "encoder"
        export_encoder(use, folder, opened, card=card)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if dry_run:
            typer.echo(card)
            for path in files:
                typer.echo(f"{path.relative_to(folder)}  {disk_size(path.stat().st_size)}")
            typer.echo(f"Nothing was sent. {counted(len(files), 'file')} to {to}: add --send.")
            return
        typer.echo(f"Sent: {send_folder(folder, to, private=private)}")
