"""Commands on the artifact store (list, show, check, drop, gc) and on banks in a cluster's memory (list, drop)."""

from __future__ import annotations

from typing import Annotated

import typer

from sentdist.cli.options import StoreRoot, check_choice
from sentdist.cli.printing import empty_table, open_console
from sentdist.errors import counted, duration
from sentdist.files import disk_size
from sentdist.inference.opening import open_store

store_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Inspect and clean up the artifact store.")


KINDS = "Only this kind: corpus, tokens, train, bank, scores, …  [default: all]"


def _check_kind(kind: str | None) -> None:
    from sentdist.plan.stages import STAGES

    if kind is not None:
        check_choice("kind", kind, STAGES)


@store_app.command("list")
def store_list(kind: Annotated[str | None, typer.Argument(help=KINDS)] = None, store: StoreRoot = None) -> None:
    """List the artifacts with their size and build time."""
    _check_kind(kind)
    opened, record = open_store(store), None
    for artifact in opened.artifacts(kind):  # no table: a narrow terminal would break the keys
        record = artifact.record
        typer.echo(f"{record.created_at}  {record.seconds:9.1f} s  {disk_size(sum(record.files.values())):>9}  {record.shown_place}")
    if record is None:
        typer.echo(f"No artifacts{f' of kind {kind}' if kind else ''} in {opened.shown}.", err=True)


@store_app.command("show")
def store_show(
    key: Annotated[str, typer.Argument(help="The beginning of a key, or a path in the store.")], store: StoreRoot = None
) -> None:
    """Print the record of an artifact."""
    artifact = open_store(store).find(key)
    typer.echo(artifact.record.model_dump_json(indent=2))
    typer.echo(artifact.uri)


@store_app.command("check")
def store_check(kind: Annotated[str | None, typer.Argument(help=KINDS)] = None, store: StoreRoot = None) -> None:
    """Read all files of all artifacts and compare them with their digests.

    Only artifacts with an unusable record are moved aside. A damaged artifact is never used: a run that needs it moves it aside and builds
    it again. Ends with exit code 1 if one is found.
    """
    _check_kind(kind)
    opened = open_store(store)
    num_bytes = num_damaged = num_checked = num_without = 0
    with open_console(stderr=True).status("checking") as status:
        places = opened.places(kind)
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
    alone: Annotated[bool, typer.Option("--alone", help="Keep artifacts made from it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreRoot = None,
) -> None:
    """Remove an artifact, and those made from it.

    A sweep that needs them builds them again.
    """
    from sentdist.store.garbage import dependents

    opened = open_store(store)
    artifact = opened.find(key)
    dropped = [*([] if alone else dependents(opened, artifact)), artifact]
    for one in dropped:
        typer.echo(one.record.shown_place)
    if not yes:
        typer.confirm(f"Remove {counted(len(dropped), 'artifact')}?", abort=True)
    for one in dropped:
        opened.drop(one)
    typer.echo(f"{counted(len(dropped), 'artifact')} removed.")


@store_app.command("gc")
def store_gc(
    older_than_hours: Annotated[float, typer.Option(min=0.0, help="Keep data changed within this many hours.")] = 1.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    store: StoreRoot = None,
) -> None:
    """Remove unused data.

    That is: data without a record, left by crashed writers; damaged data that was moved aside; checkpoints of trainings that are finished
    or were not resumed for 30 days.
    """
    from sentdist.store.garbage import collect_garbage, orphans

    opened = open_store(store)
    seconds = older_than_hours * 3600
    places = (orphans if dry_run else collect_garbage)(opened, older_than_s=seconds)
    for place in places:
        typer.echo(place)
    typer.echo(f"{counted(len(places), 'orphan')} {'found' if dry_run else 'removed'}.")


bank_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Banks of embeddings in the object store of a Ray cluster.")


@bank_app.command("list")
def bank_list() -> None:
    """List the banks that the cluster holds in memory."""
    from sentdist.execution.banks.owner import IDLE_S, list_banks
    from sentdist.execution.cluster.connection import connect

    connect()
    table = empty_table(
        "banks in the object store", "bank", "key", "sentences", "width", "dtype", "MB", "shards", "on disk", "idle s", "nodes"
    )
    banks = list_banks()
    if not banks:
        typer.echo(f"No banks in the memory of this cluster: they are freed {duration(IDLE_S)} after their last use.")
        return
    for bank in banks:
        sizes = (f"{bank.num_sentences:,}", str(bank.width), bank.dtype, f"{bank.num_bytes / 1e6:.1f}", str(bank.num_shards))
        table.add_row(bank.label, bank.key, *sizes, str(bank.num_spilled), f"{bank.idle_s:.0f}", ", ".join(bank.nodes))
    open_console().print(table)


@bank_app.command("drop")
def bank_drop(name: Annotated[str, typer.Argument(help="Label or beginning of the key, as in `sentdist bank list`.")]) -> None:
    """Free a bank's memory.

    Its artifact stays in the store; the next training that needs it loads it again.
    """
    from sentdist.execution.banks.owner import drop_bank
    from sentdist.execution.cluster.connection import connect

    connect()
    typer.echo(f"{drop_bank(name).label} dropped.")
