"""The commands that start and end this machine's servers, and have it leave a cluster: up, down, leave."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sentdist.addresses import without_secrets
from sentdist.cli.options import StoreRoot
from sentdist.errors import ServerError, counted

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

    On 127.0.0.1 only, with a token and a password; what they keep lies in ./.sentdist. Typed again, it finds what runs.
    """
    from sentdist.execution import health
    from sentdist.services.servers import Hardware
    from sentdist.services.servers import up as start
    from sentdist.services.state import own_store, state_of

    home = Path.cwd()
    if (compiler := health.compiler()).state == "bad":
        raise ServerError(where="compiler", found=compiler.text, expected="a C++ compiler and Python.h", remedy="Then run this again.")
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
    """End the servers that `up` started.

    Those of this folder and nothing else, by the notes in ./.sentdist. Artifacts, MLflow's database and logs stay in ./.sentdist.
    """
    from sentdist.services.servers import down as stop
    from sentdist.services.state import state_of

    stop(state_of(Path.cwd()), typer.echo)


def leave(
    within: Annotated[int, typer.Option("--within", min=1, max=86_400, help="Seconds until it is taken away.")] = 60,
    everywhere: Annotated[bool, typer.Option("--all", help="All hosts of the cluster will be.")] = False,
) -> None:
    """Tell the cluster that this host will be taken away.

    Such as by a notice of a spot machine: trainings on it write a checkpoint at once, from which they go on
    elsewhere. Nothing is ended by this.
    """
    from sentdist.execution.cluster.connection import connect
    from sentdist.execution.cluster.leaving import leave as announce

    connect()
    leaving = announce(within_s=within, everywhere=everywhere)
    typer.echo(
        f"{counted(len(leaving), 'host')} to go within {within} s: {', '.join(leaving)}. Trainings there write their checkpoints now."
    )
