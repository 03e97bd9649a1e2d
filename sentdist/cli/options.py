"""Arguments and options shared by commands, and checks of their values."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from sentdist.errors import DataError, named
from sentdist.inference.opening import DEFAULT_STORE, ENCODER_KEYS, data_root

RecipeFile = Annotated[Path, typer.Argument(help="A recipe file, or the name of a shipped recipe, such as demo.", show_default=False)]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a field of the recipe; may be repeated.")]
StoreRoot = Annotated[
    str | None,
    typer.Option("--store", envvar="SENTDIST_STORE", help=f"Store of artifacts: a folder, s3:// or gs://.  [default: {DEFAULT_STORE}]"),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data", parser=data_root, envvar="SENTDIST_DATA", metavar="DIR", help="Folder of the data sets, or s3://, gs:// or hf://."
    ),
]
EncoderName = Annotated[
    str,
    typer.Argument(
        help="A folder, a packaged name (minilm-l6), a hub id, or the key of a training; with ?key=value&… how it is opened "
        f"({', '.join(ENCODER_KEYS)}).",
        show_default=False,
    ),
]
TaskNames = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        help="Tasks, groups (sts, transfer, retrieval, …) or KIND=SOURCE@SPLIT for data of your own, such as sts=pairs.tsv; "
        "own=faq.csv: the test rows that tune holds out of a file; separated by commas, or repeated.  [default: sts]",
        show_default=False,
    ),
]
RelationWeights = Annotated[
    list[str] | None, typer.Option("--relation", metavar="NAME[=WEIGHT]", help="Score by this relation of the encoder; may be repeated.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Workers of the Ray cluster that embed.  [default: this process]")]
OutputFormat = Annotated[
    Literal["table", "json"], typer.Option("--format", help="table, or json for other programs, with notes on stderr.")
]


def check_in_use(options: Mapping[str, object], *, needs: str, is_given: bool) -> None:
    """Raise DataError for an option (None, False: not given) that has no effect without `needs`."""
    for option, value in options.items():
        if value is not None and value is not False and not is_given:
            raise DataError(where=option, found=f"no {needs}", expected=f"{needs} beside it", remedy="Leave it out: it has no effect.")


def made_folder(path: Path) -> Path:
    """Make the folder and its parents, if missing, and return it; DataError if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(where=f"--out {path}", found=named(error), expected="a writable folder", remedy="Name another.") from error
    return path


def weights_of(relations: list[str] | None) -> dict[str, float]:
    """Parse NAME or NAME=WEIGHT into a map from relation to weight; DataError for a weight that is no number."""
    weights = {}
    for given in relations or []:
        name, _, weight = given.partition("=")
        try:
            weights[name] = float(weight or 1.0)
        except ValueError:
            raise DataError(where="--relation", found=given, expected="NAME or NAME=WEIGHT", remedy="Correct the weight.") from None
    return weights


def by_commas(given: str) -> list[str]:
    """Split at commas, except within quotation marks."""
    return [one.strip() for one in next(csv.reader([given], skipinitialspace=True)) if one.strip()] if given else []
