"""How a finished stage is published, with what its record says of the machine and the versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

from sentdist import processor
from sentdist.learning.kernels.used_kernels import used_kernels
from sentdist.plan.stage import Json, Stage
from sentdist.stages.context import Context
from sentdist.stages.inputs_in_use import check_inputs
from sentdist.store.store import Artifact

LIBRARIES = ("sentdist", "torch", "transformers", "ray", "deepspeed", "mlflow", "sentence-transformers", "scipy", "numpy")


def commit(stage: Stage, folder: Path, context: Context, *, seconds: float, results: dict[str, Json]) -> Artifact:
    """Publish what lies in `folder` as the stage's artifact.

    Raises:
        ArtifactLost: an input was changed while it was read.
    """
    check_inputs()
    runtime: dict[str, Json] = context.runtime.model_dump(mode="json")
    kernels = used_kernels()  # not of the environment alone: this process may have loaded them since it was asked
    found = environment() | ({"kernels": kernels} if kernels else {})
    return context.store.commit(stage, folder, seconds=seconds, runtime=runtime, environment=found, results=results)


@cache
def environment() -> dict[str, str]:
    """Versions, host, processor, and Ray where it runs this process, as text."""
    found = {
        "python": platform.python_version(),
        "host": platform.node(),
        "system": platform.platform(terse=True),
        "processor": processor.name(),
    }
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _commit()
    return found | ({"commit": commit} if commit else {}) | ({"executed by": "ray"} if "RAY_JOB_ID" in os.environ else {})


def _commit() -> str | None:
    """The commit of the source tree this code runs from, if it is one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    asked = subprocess.run(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None
