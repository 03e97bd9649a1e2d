"""Commands on the banks in a cluster's memory: bank list, drop."""

from __future__ import annotations

from typing import Annotated

import typer

from sentdist.cli.printing import empty_table, open_console
from sentdist.errors import duration

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
        typer.echo(f"No banks are in the memory of this cluster: they are freed {duration(IDLE_S)} after their last use.")
        return
    for bank in banks:
        sizes = (f"{bank.num_sentences:,}", str(bank.width), bank.dtype, f"{bank.num_bytes / 1e6:.1f}", str(bank.num_shards))
        table.add_row(bank.label, bank.key, *sizes, str(bank.num_spilled), f"{bank.idle_s:.0f}", ", ".join(bank.nodes))
    open_console().print(table)


@bank_app.command("drop")
def bank_drop(name: Annotated[str, typer.Argument(help="Label or beginning of the key, as `sentdist bank list` shows them.")]) -> None:
    """Free a bank's memory.

    Its artifact stays in the store, and the next training that needs it loads it again.
    """
    from sentdist.execution.banks.owner import drop_bank
    from sentdist.execution.cluster.connection import connect

    connect()
    typer.echo(f"{drop_bank(name).label} dropped.")
