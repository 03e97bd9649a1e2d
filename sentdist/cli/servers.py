"""Commands on servers and machines: up, down, doctor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sentdist.cli.options import StoreRoot
from sentdist.cli.printing import open_console
from sentdist.errors import ServerError
from sentdist.inference.opening import data_root, store_root
from sentdist.text import without_secrets

LEAST_BYTES = 80_000_000  # of Ray's object store


def up(
    cpus: Annotated[int | None, typer.Option("--cpus", min=1, help="CPUs that Ray may use.  [default: all]")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs that Ray may use.  [default: all]")] = None,
    store: StoreRoot = None,
) -> None:
    """Start Ray and MLflow on this machine.

    They listen on 127.0.0.1 only, require a token and a password, and keep their files in ./.sentdist. Servers that run are kept.
    Environment variables: SENTDIST_RAY_PORT (6379), SENTDIST_DASHBOARD_PORT (8265), SENTDIST_MLFLOW_PORT (5001),
    SENTDIST_OBJECT_STORE_BYTES of memory for banks (1000000000), SENTDIST_METRICS=1 to open Ray's ports for Prometheus.
    """
    from sentdist.run import health
    from sentdist.services.servers import Hardware
    from sentdist.services.servers import up as start
    from sentdist.services.state import PORTS, state_of

    home = Path.cwd()
    if (compiler := health.compiler()).state == "bad":
        raise ServerError(where="compiler", found=compiler.text, expected="a C++ compiler and Python.h", remedy="Install them first.")
    variables = {name: f"SENTDIST_{name.upper()}_PORT" for name in PORTS}
    asked = {name: _number(variable, low=1, high=65_535) for name, variable in variables.items() if os.environ.get(variable)}
    memory = _number("SENTDIST_OBJECT_STORE_BYTES", "1000000000", low=LEAST_BYTES)
    metrics = os.environ.get("SENTDIST_METRICS", "").lower() in ("1", "true", "yes", "on")
    state = state_of(home, asked=asked, store=store if not store or "://" in store else os.path.abspath(Path(store).expanduser()))
    start(state, Hardware(cpus=cpus, gpus=gpus, object_store_bytes=memory, metrics=metrics), typer.echo)
    env = state.folder / "env"
    typer.echo(f"""
  Ray        {state.ray}, dashboard {state.dashboard} (token: {state.token_file})
  GPUs       {gpus if gpus is not None else health.gpus().text}
  MLflow     {state.mlflow_link}
  store      {without_secrets(state.store)}
  logs       {state.folder / "logs"}

Next:
  source {os.path.relpath(env)}
  sentdist tune PAIRS.csv --budget 30m     (your own rows; or `sentdist sweep RECIPE`, see `sentdist list recipes`)
  sentdist down""")


def _number(variable: str, default: str = "", *, low: int, high: int = 1 << 50) -> int:
    given = os.environ.get(variable) or default
    if not given.isdecimal() or not low <= int(given) <= high:
        raise ServerError(where=variable, found=given, expected=f"a number from {low:,} to {high:,}", remedy="Correct it.")
    return int(given)


def down() -> None:
    """Stop the servers that `up` started.

    Only those of this folder, by the notes in ./.sentdist. Artifacts, MLflow's database and logs stay there.
    """
    from sentdist.services.servers import down as stop
    from sentdist.services.state import state_of

    stop(state_of(Path.cwd()), typer.echo)


def doctor() -> None:
    """Check this machine.

    Prints a line each on versions, compiler, ports, data, store, Ray and MLflow.
    """
    from sentdist.run.health import examine

    console, sound = open_console(), True
    for finding in examine(store_root(None), data_root(None)):
        sound = sound and finding.state != "bad"
        mark = {"good": "[green]ok[/]  ", "note": "[yellow]note[/]", "bad": "[red]bad[/] "}[finding.state]
        console.print(f"{mark}  {finding.subject:<22}", end="")
        console.print(finding.text, markup=False, highlight=False, soft_wrap=True)
    if not sound:
        raise typer.Exit(1)
