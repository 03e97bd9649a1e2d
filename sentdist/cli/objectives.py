"""`sentdist objectives`: what an encoder can be asked to minimize."""

from __future__ import annotations

from typing import Annotated

import typer

from sentdist.cli.printing import open_console


def objectives(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a table in Markdown.")] = False,
) -> None:
    """List the objectives that a recipe can name."""
    from sentdist.plan.objectives import OBJECTIVES, objective_rows
    from sentdist.table_text import markdown_table

    if markdown:
        typer.echo(markdown_table(["in a recipe", "what it is", "whose work", "equation in"], objective_rows()))
        return
    console = open_console()
    for name, one in OBJECTIVES.items():
        works = ", ".join(work.short for work in one.citations)
        console.print(f"{name:12} {one.about} ({works}; sentdist/objectives/{name}.py)", markup=False, highlight=False, soft_wrap=True)
