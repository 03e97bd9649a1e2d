"""Commands on the artifact store: store list, show, gc."""

from __future__ import annotations

from typing import Annotated

import typer

from sentdist.cli.opening import open_store
from sentdist.cli.options import StoreRoot

store_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at and tidy the artifact store.")


@store_app.command("list")
def store_list(kind: Annotated[str | None, typer.Argument(help="corpus, train, bank or scores.")] = None, store: StoreRoot = None) -> None:
    """List the artifacts with their size and the time they took."""
    for artifact in open_store(store).artifacts(kind):  # no table: a narrow terminal would break the keys
        record = artifact.record
        megabytes = sum(record.files.values()) / 1e6
        typer.echo(f"{record.created_at}  {record.seconds:9.1f} s  {megabytes:9.1f} MB  {record.place}")


@store_app.command("show")
def store_show(key: Annotated[str, typer.Argument(help="The beginning of a key, or a place.")], store: StoreRoot = None) -> None:
    """Print the record of an artifact."""
    artifact = open_store(store).find(key)
    typer.echo(artifact.record.model_dump_json(indent=2))
    typer.echo(artifact.uri)


@store_app.command("gc")
def store_gc(
    older_than_hours: Annotated[float, typer.Option(min=0.0, help="Leave alone what was touched since.")] = 1.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list.")] = False,
    store: StoreRoot = None,
) -> None:
    """Remove what crashed writers left.

    Folders that hold data but no record.
    """
    opened = open_store(store)
    seconds = older_than_hours * 3600
    places = opened.orphans(older_than_s=seconds) if dry_run else opened.collect_garbage(older_than_s=seconds)
    for place in places:
        typer.echo(place)
    typer.echo(f"{len(places)} orphan{'' if len(places) == 1 else 's'} {'found' if dry_run else 'removed'}.")
