"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_STORE = ".sentdist/store"

RecipeFile = Annotated[Path, typer.Argument(help="A recipe, such as rayjobs/recipes/demo.yaml.", show_default=False)]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a field of the recipe; may be repeated.")]
StoreRoot = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="SENTDIST_STORE", help=f"Where artifacts are kept: a folder, s3:// or gs://.  [default: {DEFAULT_STORE}]"
    ),
]
DataRoot = Annotated[Path | None, typer.Option("--data", envvar="SENTDIST_DATA", help="Folder of the data sets.")]
EncoderName = Annotated[
    str, typer.Argument(help="A folder, a packaged name (minilm-l6), a hub id, or the key of a train artifact.", show_default=False)
]
EncoderRevision = Annotated[str | None, typer.Option("--revision", help="Commit of a hub checkpoint.")]
