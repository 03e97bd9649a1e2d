"""Commands on the artifact store: show, check, drop, gc, diff."""

from __future__ import annotations

from typing import Annotated

import typer

from sentdist.cli.options import StoreRoot
from sentdist.cli.printing import empty_table, open_console
from sentdist.errors import DataError, counted
from sentdist.files import disk_size
from sentdist.inference.opening import open_store

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
    for difference in differences:
        table.add_row(difference.field, str(difference.first), str(difference.second))
    open_console().print(table)
