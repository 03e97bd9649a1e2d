"""How a stage that was built in one process is published."""

from __future__ import annotations

import time
from pathlib import Path

from sentdist.plan.stage import Json, Stage
from sentdist.stages.context import Context
from sentdist.stages.environment import environment
from sentdist.store.store import Artifact


def commit(stage: Stage, folder: Path, context: Context, *, started: float, results: dict[str, Json]) -> Artifact:
    """Publish what lies in `folder` as the stage's artifact. started: what `time.perf_counter` said then."""
    runtime: dict[str, Json] = context.runtime.model_dump(mode="json")
    seconds = time.perf_counter() - started
    return context.store.commit(stage, folder, seconds=seconds, runtime=runtime, environment=environment(), results=results)
