"""The command that answers requests with a registered encoder: serve."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer


def serve(
    model: Annotated[str, typer.Argument(help="models:/NAME@best or models:/NAME/VERSION.", show_default=False)],
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1.", min=1, max=65535)] = 5002,
    uri: Annotated[
        str, typer.Option("--uri", envvar="MLFLOW_TRACKING_URI", help="Address of the MLflow server.")
    ] = "http://127.0.0.1:5001",
) -> None:
    """Serve a registered encoder.

    Its files are downloaded and compared with the digests that were noted when it was registered; then `mlflow models serve` answers.
    """
    from sentdist.execution.sigterm import end_on_sigterm
    from sentdist.services.ports import Port
    from sentdist.store.scratch import scratch_folder
    from sentdist.tracking.served_model import verified_copy

    Port(number=port, who="the encoder", option="--port", command="sentdist serve MODEL").need()
    end_on_sigterm()  # so that the folder and the server go, too
    with scratch_folder(Path(tempfile.gettempdir()), "served") as empty:
        folder = verified_copy(model, uri, empty)
        typer.echo(f"{model}: all files are as they were registered. Requests go to http://127.0.0.1:{port}/invocations")
        command = [sys.executable, "-P", "-m", "mlflow", "models", "serve", "--model-uri", str(folder), "--env-manager", "local"]
        path = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"  # MLflow calls uvicorn by its name
        command += ["--host", "127.0.0.1", "--port", str(port)]
        # uvicorn imports from the folder that it is started in, where others may have put modules
        raise typer.Exit(subprocess.call(command, env=os.environ | {"PATH": path}, cwd=folder))
