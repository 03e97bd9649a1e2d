"""Options of the commands that train on a person's own file."""

from __future__ import annotations

import csv
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from sentdist.cli.options import check_choice
from sentdist.errors import DataError
from sentdist.table_files import suffix_of

if TYPE_CHECKING:
    from sentdist.plan.stage import Json

QUICK_BYTES = 1 << 18  # of a file that is looked through in a few seconds
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Pairs, triplets, graded pairs or FAQ: a file, a folder of its parts, or hub:OWNER/NAME@COMMIT.",
        show_default=False,
    ),
]
DataShape = Annotated[
    str | None, typer.Option("--shape", help="pairs, triplets, graded or faq.  [default: recognised]", show_default=False)
]
DataColumns = Annotated[
    str,
    typer.Option(
        "--columns", help="Columns of the texts, then of the score, separated by commas.  [default: recognised]", show_default=False
    ),
]
HasHeader = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line names the columns.  [default: recognised]", show_default=False),
]
FileEncoding = Annotated[
    str | None,
    typer.Option("--encoding", help="Encoding of the text, such as cp1251 or mac-roman.  [default: recognised]", show_default=False),
]
TextLength = Annotated[int, typer.Option("--max-length", min=3, help="Tokens of a text.")]


def corpus_fields(file: str, *, shape: str | None, columns: str, header: bool | None, encoding: str | None) -> dict[str, Json]:
    """What a person said of the file, as fields of a recipe's corpus; the rest is recognised.

    Raises:
        DataError: a shape that there is not, or what only separated values have where there are none.
    """
    from sentdist.plan.specs import Shape

    if shape is not None:
        check_choice("--shape", shape, get_args(Shape))
    _check_header(header, file)
    fields: dict[str, Json] = {"shape": shape, "columns": [*by_commas(columns)] or None, "header": header, "encoding": encoding}
    return {name: value for name, value in fields.items() if value is not None}


def say_that_it_takes_a_while(file: str) -> None:
    """Say what is done with a large file: looking for texts that are alike takes longer than a person waits."""
    path = Path(file).expanduser()
    files = [path] if path.is_file() else [*path.iterdir()] if path.is_dir() else []
    if sum(one.stat().st_size for one in files if one.is_file()) > QUICK_BYTES:
        typer.echo(f"Looking through {path.name} for texts that are alike, which are held out together.", err=True)


def by_commas(given: str) -> list[str]:
    """What commas separate; a name in quotation marks may have some."""
    return [one.strip() for one in next(csv.reader([given], skipinitialspace=True))] if given else []


def _check_header(header: bool | None, file: str) -> None:
    from sentdist.data.sources.separated import MAY_BE_SEPARATED

    if header is not None and not Path(file).is_dir() and suffix_of(PurePath(file)) not in MAY_BE_SEPARATED:
        raise DataError(
            where="--header" if header else "--no-header",
            found=f"{Path(file).name}, whose columns have names",
            expected=f"one of {', '.join(MAY_BE_SEPARATED)}",
            remedy="It has no effect: leave it out.",
        )
