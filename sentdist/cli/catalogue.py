"""`sentdist objectives` and `sentdist tasks`: what a recipe can ask an encoder to minimize, and on what it can be scored."""

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
        typer.echo(markdown_table(["in a recipe", "what it is", "whose work"], objective_rows()))
        return
    console = open_console()
    for name, one in OBJECTIVES.items():
        works = ", ".join(work.short for work in one.citations)
        console.print(f"{name:12} {one.about} ({works}; sentdist/objectives/{name}.py)", markup=False, highlight=False, soft_wrap=True)


def tasks() -> None:
    """List the tasks that score encoders.

    And the kinds that data of your own can have, as KIND=SOURCE@SPLIT.
    """
    from sentdist.plan.task_kinds import TASK_KINDS
    from sentdist.plan.tasks import TASKS

    console = open_console()
    for kind in TASK_KINDS.values():
        own = "" if kind.own is None else f"; of your own: {kind.own.replace('`', '')}"
        console.print(f"{kind.name:14} {kind.main[1]}{own}", markup=False, highlight=False, soft_wrap=True)
        if names := [name for name, card in TASKS.items() if card.kind == kind.name]:
            console.print(f"{'':14} {', '.join(names)}", markup=False, highlight=False, soft_wrap=True)
