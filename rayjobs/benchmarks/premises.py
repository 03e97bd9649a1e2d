"""SupMPN's Table 1, counted: `python -m rayjobs.benchmarks.premises --data DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentdist.errors import SentdistError
from sentdist.text import markdown_table

# Of the paper (Appl. Sci. 2022, 12(19) 9659, Table 1): source -> entailments and contradictions a premise has -> premises.
# MNLI's "1783489" is printed as one number; 1783 and 489 is the split with falling counts.
PRINTED = {"nli/snli": {"1": 139_299, "2-4": 1_890, "5+": 7_956}, "nli/mnli": {"1": 125_860, "2": 1_783, "3": 489}}


def main(
    data: Annotated[Path, typer.Option(help="The data root, with nli/snli and nli/mnli.", show_default=False)],
    split: Annotated[str, typer.Option(help="Of both.")] = "train",
) -> None:
    """Print how many premises have how many entailments and contradictions, beside the paper's numbers."""
    try:
        typer.echo(table(data, split=split))
    except SentdistError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def table(data: Path, *, split: str = "train") -> str:
    """The table as Markdown. Raises DataError for sources that are missing or of another shape."""
    from sentdist.corpora.premises import COLUMNS, counted_premises, inference_rows
    from sentdist.data.sources import read_source

    rows = []
    for source, printed in PRINTED.items():
        found = counted_premises(inference_rows(read_source(source, split=split, data_root=data, columns=COLUMNS), where=source))
        rows += [[source, kind, f"{count:,}", f"{printed[kind]:,}" if kind in printed else ""] for kind, count in found.items()]
    return markdown_table(["source", "entailments and contradictions", "premises", "printed"], rows)


if __name__ == "__main__":
    typer.run(main)
