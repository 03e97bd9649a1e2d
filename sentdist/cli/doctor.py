"""The command that checks this machine: doctor."""

from __future__ import annotations

import typer

from sentdist.cli.options import DataRoot, StoreRoot
from sentdist.cli.printing import open_console
from sentdist.inference.opening import store_root


def doctor(store: StoreRoot = None, data: DataRoot = None) -> None:
    """Check this machine.

    Versions, compiler, ports, data, store, Ray and MLflow: a line each.
    """
    from sentdist.execution.health import examine

    console, sound = open_console(), True
    for finding in examine(store_root(store), data):
        sound = sound and finding.state != "bad"
        mark = {"good": "[green]ok[/]  ", "note": "[yellow]note[/]", "bad": "[red]bad[/] "}[finding.state]
        console.print(f"{mark}  {finding.subject:<22}", end="")
        console.print(finding.text, markup=False, highlight=False, soft_wrap=True)
    if not sound:
        raise typer.Exit(1)
