"""Commands on servers and machines: up, down, leave, doctor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sentdist.cli.options import DataRoot, StoreRoot
from sentdist.cli.printing import open_console
from sentdist.errors import ServerError, counted
from sentdist.inference.opening import store_root
from sentdist.text import without_secrets

PORT = {"min": 1, "max": 65535, "show_default": False}
RayPort = Annotated[int | None, typer.Option("--ray-port", envvar="SENTDIST_RAY_PORT", help="Port of Ray's head.  [default: 6379]", **PORT)]
DashboardPort = Annotated[
    int | None, typer.Option("--dashboard-port", envvar="SENTDIST_DASHBOARD_PORT", help="Port of Ray's dashboard.  [default: 8265]", **PORT)
]
MlflowPort = Annotated[
    int | None, typer.Option("--mlflow-port", envvar="SENTDIST_MLFLOW_PORT", help="Port of MLflow.  [default: 5001]", **PORT)
]


def up(
    ray_port: RayPort = None,
    dashboard_port: DashboardPort = None,
    mlflow_port: MlflowPort = None,
    cpus: Annotated[int | None, typer.Option("--cpus", min=1, help="CPUs that Ray may use.  [default: all]")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs that Ray may use.  [default: all]")] = None,
    object_store_bytes: Annotated[
        int,
        typer.Option(
            "--object-store-bytes",
            envvar="SENTDIST_OBJECT_STORE_BYTES",
            min=80_000_000,
            help="Memory for banks (embeddings that trainings share).",
        ),
    ] = 1_000_000_000,
    store: StoreRoot = None,
    metrics: Annotated[bool, typer.Option("--metrics", envvar="SENTDIST_METRICS", help="Open Ray's ports for Prometheus.")] = False,
) -> None:
    """Start Ray and MLflow on this machine.

    They listen on 127.0.0.1 only, require a token and a password, and keep their files in ./.sentdist. Servers that run are kept.
    """
    from sentdist.execution import health
    from sentdist.services.servers import Hardware
    from sentdist.services.servers import up as start
    from sentdist.services.state import own_store, state_of

    home = Path.cwd()
    if (compiler := health.compiler()).state == "bad":
        raise ServerError(where="compiler", found=compiler.text, expected="a C++ compiler and Python.h", remedy="Install them first.")
    chosen, note = own_store(store, home)
    if note:
        typer.echo(note)
    asked = {"ray": ray_port, "dashboard": dashboard_port, "mlflow": mlflow_port}
    state = state_of(home, asked=asked, store=chosen if not chosen or "://" in chosen else os.path.abspath(Path(chosen).expanduser()))
    start(state, Hardware(cpus=cpus, gpus=gpus, object_store_bytes=object_store_bytes, metrics=metrics), typer.echo)
    env = state.folder / "env"
    typer.echo(f"""
  Ray        {state.ray}, dashboard {state.dashboard} (token: {state.token_file})
  GPUs       {gpus if gpus is not None else health.gpus().text}
  MLflow     {state.mlflow_link}
  store      {without_secrets(state.store)}
  logs       {state.folder / "logs"}

Next:
  source {os.path.relpath(env)}
  sentdist tune PAIRS.csv --budget 30m     (your own rows; or `sentdist sweep RECIPE`, see `sentdist recipes`)
  sentdist down""")


def down() -> None:
    """Stop the servers that `up` started.

    Only those of this folder, by the notes in ./.sentdist. Artifacts, MLflow's database and logs stay there.
    """
    from sentdist.services.servers import down as stop
    from sentdist.services.state import state_of

    stop(state_of(Path.cwd()), typer.echo)


def leave(
    within: Annotated[int, typer.Option("--within", min=1, max=86_400, help="Seconds until it goes away.")] = 60,
    everywhere: Annotated[bool, typer.Option("--all", help="All hosts of the cluster go away.")] = False,
) -> None:
    """Announce to the cluster that this host will go away.

    For example on the notice of a spot machine: its trainings write a checkpoint at once and resume from it elsewhere. Nothing is stopped.
    """
    from sentdist.execution.cluster.connection import connect
    from sentdist.execution.cluster.nodes import leave as announce

    connect()
    leaving = announce(within_s=within, everywhere=everywhere)
    typer.echo(
        f"{counted(len(leaving), 'host')} to go within {within} s: {', '.join(leaving)}. Trainings there write their checkpoints now."
    )


def doctor(store: StoreRoot = None, data: DataRoot = None) -> None:
    """Check this machine.

    Prints a line each on versions, compiler, ports, data, store, Ray and MLflow.
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
