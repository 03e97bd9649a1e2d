"""How scores and comparisons of encoders are printed: tables with sentences, or JSON for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.printing import empty_table, open_console, two_decimals

if TYPE_CHECKING:
    from sentdist.report.evaluated import Compared, ScoreLine

FORMATS = ("table", "json")
OutputFormat = Annotated[
    str,
    typer.Option("--format", help="table, or json: all numbers unrounded, for other programs; what else there is to say goes to stderr."),
]


def print_json(values: Mapping[str, object]) -> None:
    """One object."""
    typer.echo(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False))


def print_scores(title: str, lines: Sequence[ScoreLine], folder: Path) -> None:
    """A table, and what there is to say of it. folder: of the artifact."""
    table = empty_table(title, "task", "measure", "× 100", "95 % on other items", "n", "not scored")
    for line in lines:
        interval = "" if line.interval is None else f"{line.interval.low:.2f} to {line.interval.high:.2f}"
        together = f" ({line.num_groups:,} apart)" if line.num_groups < line.num_items else ""
        size = f"{line.num_items:,}{together}" if line.num_items else ""
        table.add_row(line.task, line.measure, two_decimals(line.score), interval, size, line.left_out)
    open_console().print(table)
    for line in lines:
        if line.why:
            typer.echo(f"{line.task} has no {line.measure}: {line.why}.")
    typer.echo(f"All measures and items: {folder}")


def print_compared(title: str, labels: tuple[str, str], found: Compared, opinion: Iterable[str], *, output: str) -> None:
    """A table and its sentences, or JSON. opinion: a second one on the same differences. output: one of FORMATS."""
    if output == "table":
        _print_differences(title, found)
        for sentence in (found.sentence, *found.notes, *opinion):
            typer.echo(sentence)
    else:
        print_json({"first": labels[0], "second": labels[1], **asdict(found), "second_opinion": list(opinion)})


def _print_differences(title: str, found: Compared) -> None:
    from sentdist.report.comparisons import p_text

    table = empty_table(title, "task", "measure", "n", "first", "second", "difference", "95 % on other items", "p")
    for line in found.lines:
        one = line.difference
        interval = "" if one.low is None or one.high is None else f"{one.low:+.2f} to {one.high:+.2f}"
        chance = "" if one.table_p is None else p_text(one.table_p).removeprefix("= ")
        size = f"{line.num_items:,}" if line.num_items else ""
        table.add_row(line.task, line.measure, size, f"{line.ours:.2f}", f"{line.theirs:.2f}", f"{one.difference:+.2f}", interval, chance)
    open_console().print(table)
